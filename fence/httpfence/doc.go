// Package httpfence guards HTTP handlers: a request whose fencing token is older than one seen
// before is answered with status 412 and does not reach the handler.
//
// On the server, [Middleware] wraps the handler of the resource and keeps the marks in any
// [fence.Guard]. On the client, [Transport] sends the token of a held lock with each request, and
// [Refusal] reads the response.
//
// # Rules
//
//  1. A request with a token raises the mark of its resource before the handler runs, even if it is
//     a GET. This is how a holder enters: it reads with its token before its first write.
//  2. The resource is held from the check to the end of the handler. A request with a newer token
//     shuts out older ones at once, and then waits, at most [Config].Wait, until those in flight
//     have finished. Requests with the same token run concurrently, since one holder sent them.
//  3. A request that writes must carry a token; a read without one passes unguarded.
//  4. A refused request does not reach the handler. A handler that runs was admitted, and no newer
//     request runs at the same time.
//  5. A step of [fence.WriteOnce] is admitted at most once per grant. The mark is set before the
//     handler runs, so "already" means that the work was started, not how it ended.
//
// # On the wire
//
// A request carries three headers: see [SetGrant] and [ReadGrant].
//
//	Lockstep-Token    the token, in decimal
//	Lockstep-Lock     the lock name, percent-encoded like a URL path
//	Lockstep-Backend  the id of the backend, such as native:prod; see [fence.For]
//
// A refusal is a [Problem], of type application/problem+json (RFC 9457):
//
//	412  stale, already or foreign: see fence.ErrStale, ErrAlready and ErrForeign
//	428  no-token: the request must carry one
//	400  invalid: a header is malformed
//	503  busy: older requests are still in flight, or too many at once; with Retry-After
//	500  failed: the guard could not be reached; the handler did not run
//
// # What it costs
//
// One step of the guard for each request with a token, two for [fence.WriteOnce], and a mutex for
// the requests in flight. [fence.Memory] lasts as long as its process; fence/filefence keeps marks
// on disk; database guards are shared by many processes.
//
// # What it cannot do
//
//   - Only requests of this process are held off while a handler runs. Where several processes
//     serve one resource, a shared guard refuses older tokens in all of them, but an older request
//     that is already inside another process continues. Route a resource to one process, or guard
//     its store too: [GrantFrom] hands the grant on.
//   - What a handler leaves behind in goroutines is not waited for. [http.TimeoutHandler]
//     leaves one behind: put it around the middleware, not inside.
//   - The headers are not authenticated. Do that first, as for any other request.
//   - A cache that answers in place of the server keeps a token from it. [Transport] asks caches to
//     pass reads on.
package httpfence
