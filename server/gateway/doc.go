// Package gateway serves the JSON API over HTTP, for curl and whatever speaks no gRPC.
//
// Every path below /v1/ is one call of the gRPC API, by the rules of api/lockstep/v1/http.yaml: the paths, the reading of
// requests and the calls are generated from them. This package makes the edges strict and readable:
//
//   - A POST has a body in application/json, else it is refused with 415, so that no web page can make a
//     browser send one without asking first. A body is one JSON value of at most 256 KiB.
//   - Unknown and repeated fields and parameters, anything behind the JSON value, and text that is not
//     UTF-8 are refused with 400, and a wrong path or method with 404 or 405.
//   - Numbers of 64 bits, tokens among them, are decimal strings, for JavaScript would round them. Fields have the names
//     of the protocol, and fields with their default value are there too.
//   - An error has a body of the same form whatever it is about; see docs/api.md.
//   - A call ends when its client hangs up, and an Acquire that waits is then cancelled.
//   - Watch is a stream of server-sent events.
//
// It decides nothing: the calls go to the node's own service, which passes them on to the leader.
package gateway
