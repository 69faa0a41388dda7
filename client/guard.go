package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// clusterKey is the metadata key in which a response reports the node's cluster, and a request
// names the one it is meant for.
const clusterKey = "lockstep-cluster"

const (
	// surveyLimit is how long endpoints have to report their cluster. An unreachable one is noticed
	// at once; one that hangs, or whose machine is off, delays a first grant by this much unless a
	// majority has agreed. No cluster can serve without a majority.
	surveyLimit = tryTimeout
	// stragglers is how long a grant waits for the last endpoints once a majority has agreed. All
	// clients with these endpoints then get their locks from one cluster, whatever the others
	// answer.
	stragglers = 100 * time.Millisecond
	// surveyRest is how long the result of a survey is valid before the endpoints are asked again.
	surveyRest = 500 * time.Millisecond
	// fewRest is how long the result is valid if only a minority answered: endpoints that hang
	// would delay every grant.
	fewRest = 10 * time.Second
)

// A guard keeps a Client and its Admin on one cluster. It checks every response on every
// connection: see options. Before the first lock is handed out or the first call of an Admin is
// made, it asks all endpoints once: see check.
type guard struct {
	cfg   Config
	turn  chan struct{} // 1 token: a survey is in progress
	tally *tally

	// lose ends everything held from a replaced cluster before another one is adopted; nil: nothing
	// can be held.
	lose func(why *ClusterError)

	mu struct {
		sync.Mutex
		pin     pin
		checked bool // the endpoints were asked, a majority answered, and all answers agreed
	}
	last struct { // survey; guarded by turn
		until   time.Time // end of its validity
		verdict verdict
		err     *ClusterError
	}
}

func newGuard(cfg Config) *guard {
	g := &guard{cfg: cfg, turn: make(chan struct{}, 1), tally: newTally(cfg.Endpoints)}
	g.mu.pin = pin{cluster: cfg.Cluster}
	g.mu.checked = len(cfg.Endpoints) == 1 // its responses are checked anyway
	return g
}

// cluster is the pinned id; empty while none is known.
func (g *guard) cluster() string { return g.pinned().cluster }

func (g *guard) pinned() pin {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.pin
}

func (g *guard) setChecked(to bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.checked = to
}

func (g *guard) isChecked() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.checked
}

// heard checks the cluster in a response from endpoint.
func (g *guard) heard(endpoint string, header metadata.MD) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range header.Get(clusterKey) {
		if err := g.mu.pin.hear(answer{endpoint, id}); err != nil {
			return err
		}
	}
	return nil
}

// check asks all endpoints for their cluster, until a majority has answered once and all answers
// agree. Endpoints that do not answer in time are checked when they are used. Its error is a
// [*ClusterError], or ErrUnavailable while it is not certain that the endpoints belong to two
// clusters.
func (g *guard) check(ctx context.Context) error {
	if g.isChecked() {
		return nil
	}
	verdict, err := g.survey(ctx)
	switch {
	case ctx.Err() != nil: // the caller handles that
	case verdict == agreed:
		g.setChecked(true)
	case verdict == clashing:
		return err
	case verdict == unsure:
		return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, withoutCode(err))
	}
	return nil
}

// reconsider decides what to do after a response from another cluster's node. If it returns nil,
// the call may be retried: the client now belongs to the other cluster, or it is not yet certain
// that it should not.
func (g *guard) reconsider(ctx context.Context, e *ClusterError) error {
	if p := g.pinned(); p.fixed() {
		return e
	}
	verdict, err := g.survey(ctx, answer{e.Endpoint, e.Cluster})
	if verdict != clashing {
		return nil
	}
	g.setChecked(false) // until the endpoints are corrected
	return err
}

// survey asks the endpoints and adopts the cluster that has replaced the pinned one, if any. Extra
// answers come from nodes that were named as the leader, or from endpoints.
func (g *guard) survey(ctx context.Context, extra ...answer) (verdict, *ClusterError) {
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return unsure, nil
	}
	if time.Now().Before(g.last.until) {
		return g.last.verdict, g.last.err
	}
	v, rest, err := g.poll(ctx, extra)
	if v == clashing && !g.pinned().fixed() { // some of the answers may be from before a restore
		v, rest, err = g.poll(ctx, extra)
	}
	if ctx.Err() != nil { // cut short: no result
		return unsure, nil
	}
	if v == replaced {
		g.adopt(err)
		v, err = agreed, nil
	}
	g.last.until, g.last.verdict, g.last.err = time.Now().Add(rest), v, err
	return v, err
}

// poll asks the endpoints once. The result is valid for rest.
func (g *guard) poll(ctx context.Context, extra []answer) (v verdict, rest time.Duration, err *ClusterError) {
	answers, n := g.ask(ctx), len(g.cfg.Endpoints)
	for _, a := range extra {
		if !slices.Contains(g.cfg.Endpoints, a.endpoint) {
			answers, n = append(answers, a), n+1
		}
	}
	rest = surveyRest
	v, err = g.pinned().judge(answers, n)
	if v == few && len(answers) > 0 {
		rest = fewRest
	}
	return v, rest, err
}

// adopt moves the client to the cluster that has replaced its own. When it returns, nothing from
// the old one is held. It sets the pin first, so that one of the two refuses a connection that
// starts in the meantime.
func (g *guard) adopt(e *ClusterError) {
	g.cfg.Logger.Warn("the cluster was replaced by a new one: all locks of the old one are lost, and this client continues with the new one",
		"old", e.Want, "new", e.Cluster, "endpoint", e.Endpoint)
	g.mu.Lock()
	g.mu.pin = pin{e.Cluster, e.Endpoint}
	g.mu.Unlock()
	if g.lose != nil {
		g.lose(e)
	}
}

// ask asks all endpoints at the same time, and returns the answers that arrived in time. An answer
// with an empty cluster is from a node that does not report it.
func (g *guard) ask(ctx context.Context) []answer {
	ctx, cancel := context.WithTimeout(ctx, surveyLimit)
	defer cancel()
	all := make(chan *answer, len(g.cfg.Endpoints)) // nil: the endpoint did not answer
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	for _, e := range g.cfg.Endpoints {
		asked.Go(func() { all <- g.askOne(ctx, e) })
	}
	var told []answer
	var late <-chan time.Time
	for range g.cfg.Endpoints {
		select {
		case a := <-all:
			if a != nil {
				told = append(told, *a)
			}
		case <-late:
			return told
		}
		if late == nil && 2*len(told) > len(g.cfg.Endpoints) && allAlike(told) {
			late = time.After(stragglers)
		}
	}
	return told
}

func allAlike(answers []answer) bool {
	return !slices.ContainsFunc(answers, func(a answer) bool { return a.cluster != answers[0].cluster })
}

// askOne uses a connection of its own, since most clients never contact most nodes again. It
// returns nil if there is no answer.
func (g *guard) askOne(ctx context.Context, endpoint string) *answer {
	conn, err := g.dial(endpoint)
	if err != nil {
		return nil
	}
	defer conn.Close()
	var header metadata.MD
	s, err := pb.NewAdminServiceClient(conn).Status(ctx, &pb.StatusRequest{}, grpc.Header(&header))
	switch {
	case err == nil:
		g.tally.heard(answerOfStatus(endpoint, s))
	case ctx.Err() == nil:
		g.tally.heard(answerOf(endpoint, err))
	}
	if ids := header.Get(clusterKey); len(ids) > 0 { // even with an error
		return &answer{endpoint, ids[0]}
	}
	if err != nil {
		return nil
	}
	return &answer{endpoint: endpoint}
}

// dial makes a connection on which every request names the pinned cluster, and every response is
// checked before anything else sees it.
func (g *guard) dial(endpoint string) (*grpc.ClientConn, error) {
	return g.cfg.dial(endpoint, grpc.WithChainUnaryInterceptor(g.unary(endpoint)), grpc.WithChainStreamInterceptor(g.stream(endpoint)))
}

func (g *guard) outgoing(ctx context.Context) context.Context {
	if id := g.cluster(); id != "" {
		return metadata.AppendToOutgoingContext(ctx, clusterKey, id)
	}
	return ctx
}

func (g *guard) unary(endpoint string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		var header metadata.MD
		err := call(g.outgoing(ctx), method, req, reply, conn, append(slices.Clip(opts), grpc.Header(&header))...)
		if wrong := g.heard(endpoint, header); wrong != nil {
			return wrong
		}
		return err
	}
}

func (g *guard) stream(endpoint string) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := open(g.outgoing(ctx), desc, conn, method, opts...)
		if err != nil {
			return nil, err
		}
		return &guardedStream{ClientStream: s, guard: g, endpoint: endpoint}, nil
	}
}

// A guardedStream checks the header before it returns the first message, or the error instead of
// it.
type guardedStream struct {
	grpc.ClientStream
	guard    *guard
	endpoint string
	looked   bool // used only by the reader
}

func (s *guardedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if s.looked {
		return err
	}
	s.looked = true
	header, failed := s.Header()
	if failed != nil {
		return err
	}
	if wrong := s.guard.heard(s.endpoint, header); wrong != nil {
		return wrong
	}
	return err
}
