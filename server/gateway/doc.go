// Package gateway serves the JSON API over HTTP, for curl and anything that does not speak gRPC.
//
// Every path below /v1/ is one call of the gRPC API, as defined in api/lockstep/v1/http.yaml: the
// paths, the parsing of requests and the calls are generated from it. This package makes the edges
// strict and readable:
//
//   - The body of a POST must be application/json, else it is refused with 415, so that no web page
//     can make a browser send one without asking first. A body is one JSON value of at most 256
//     KiB.
//   - Unknown and repeated fields and parameters, anything after the JSON value, and text that is
//     not UTF-8 are refused with 400, and a wrong path or method with 404 or 405.
//   - 64-bit numbers, including tokens, are decimal strings, because JavaScript would round them.
//     Fields have the names of the protocol, and fields with their default value are included.
//   - All errors have a body of the same form; see docs/api.md.
//   - A call ends when its client disconnects, and an Acquire that waits is then cancelled.
//   - Watch is a stream of server-sent events.
//
// It decides nothing: the calls go to the node's own service, which forwards them to the leader.
package gateway
