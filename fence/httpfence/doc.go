// Package httpfence guards HTTP handlers: a request that carries an older fencing token
// than one seen before is answered 412, and does not reach the handler.
//
// On the server [Middleware] wraps the handler of the resource, with any [fence.Guard]
// for the marks. On the client [Transport] sends the token of a held lock with each
// request, and [Refusal] reads the answer.
//
// # Rules
//
//  1. A request with a token raises the mark of its resource before the handler runs; a
//     GET too, which is how a holder enters: it reads with its token before it first writes.
//  2. The resource is held from the check to the end of the handler. A request with a newer
//     token closes the door to older ones at once, and then waits until those in
//     flight have ended, at most [Config].Wait. Requests with the same token run side by side, as
//     one holder sent them.
//  3. A request that writes must have a token; a read without one passes unguarded.
//  4. A refused request does not reach the handler. A handler that runs was admitted, and no newer
//     one runs beside it.
//  5. A step of [fence.WriteOnce] is admitted at most once in a grant. The mark is set before
//     the handler runs, so "already" says that the work was begun, not how it ended.
//
// # On the wire
//
// A request carries three headers; see [SetGrant] and [ReadGrant].
//
//	Lockstep-Token    the token, in decimal
//	Lockstep-Lock     the lock name, percent-encoded as the path of a URL is
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
// One step of the guard for each request with a token, two where it writes once, and a mutex for
// the requests in flight. [fence.Memory] is a guard for one process until it ends; fence/filefence
// has one on the disk; the guards of databases are shared by many processes.
//
// # What it cannot do
//
//   - Only requests of this process are held off while a handler runs. Where several
//     processes serve one resource, a shared guard refuses older tokens in all of them, but an
//     older request that is already inside another process goes on. Route a resource to one
//     process, or guard its store too: [GrantFrom] hands the grant on.
//   - What a handler leaves behind in goroutines is not waited for. [http.TimeoutHandler]
//     leaves one behind: put it around the middleware, not inside.
//   - The headers are not authenticated. Do that first, as for any other request.
//   - A cache that answers in place of the server keeps a token from it. [Transport] asks caches to
//     pass reads on.
package httpfence
