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

// clusterKey is the key of the metadata in which an answer tells the node's cluster, and a request
// the one that it is for.
const clusterKey = "lockstep-cluster"

const (
	// surveyLimit is how long endpoints have to tell their cluster. One that cannot be reached says
	// so at once; one that hangs, or whose machine is off, delays a first grant by this much,
	// unless a majority has agreed, without which no cluster serves.
	surveyLimit = tryTimeout
	// stragglers is how long a grant waits for the last endpoints when a majority has agreed
	// already. All clients with these endpoints then get their locks from one cluster, whatever the
	// others say.
	stragglers = 100 * time.Millisecond
	// surveyRest is how long the outcome of a survey stands before the endpoints are asked again.
	surveyRest = 500 * time.Millisecond
	// fewRest is how long the outcome stands when a minority answered: endpoints that hang would
	// delay every grant.
	fewRest = 10 * time.Second
)

// A guard keeps a Client and its Admin to one cluster. It looks at every answer of every
// connection: see options. Before the first lock is handed out or the first call of an Admin is
// made, it asks all endpoints once; see check.
type guard struct {
	cfg   Config
	turn  chan struct{} // 1 token: a survey is under way
	tally *tally

	// lose ends what is held of a cluster that was replaced, before another one is adopted; nil:
	// nothing can be.
	lose func(why *ClusterError)

	mu struct {
		sync.Mutex
		pin     pin
		checked bool // the endpoints were asked, a majority answered, and all that did agreed
	}
	last struct { // survey; guarded by turn
		until   time.Time // it stands
		verdict verdict
		err     *ClusterError
	}
}

func newGuard(cfg Config) *guard {
	g := &guard{cfg: cfg, turn: make(chan struct{}, 1), tally: newTally(cfg.Endpoints)}
	g.mu.pin = pin{cluster: cfg.Cluster}
	g.mu.checked = len(cfg.Endpoints) == 1 // its answers are looked at anyway
	return g
}

// cluster is the id that is pinned; empty while none is known.
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

// heard looks at what an answer from endpoint tells.
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

// check asks all endpoints for their cluster, until a majority has answered once and all that did
// agree. Those that do not answer in time are looked at when they are used. Its error is a
// [*ClusterError], or ErrUnavailable while it is not certain that the endpoints are of two
// clusters.
func (g *guard) check(ctx context.Context) error {
	if g.isChecked() {
		return nil
	}
	verdict, err := g.survey(ctx)
	switch {
	case ctx.Err() != nil: // the caller will see to that
	case verdict == agreed:
		g.setChecked(true)
	case verdict == clashing:
		return err
	case verdict == unsure:
		return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, withoutCode(err))
	}
	return nil
}

// reconsider decides what follows from the answer of another cluster's node. Without an error the
// call may be made again: the client belongs to the other cluster now, or it is not certain yet
// that it should not.
func (g *guard) reconsider(ctx context.Context, e *ClusterError) error {
	if p := g.pinned(); p.fixed() {
		return e
	}
	verdict, err := g.survey(ctx, answer{e.Endpoint, e.Cluster})
	if verdict != clashing {
		return nil
	}
	g.setChecked(false) // until the endpoints are put right
	return err
}

// survey asks the endpoints, and adopts the cluster that has replaced the one pinned. Extra answers
// are of nodes that another named as the leader, or of endpoints.
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
	if ctx.Err() != nil { // cut short: it says nothing
		return unsure, nil
	}
	if v == replaced {
		g.adopt(err)
		v, err = agreed, nil
	}
	g.last.until, g.last.verdict, g.last.err = time.Now().Add(rest), v, err
	return v, err
}

// poll asks the endpoints once. The outcome stands for rest.
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

// adopt makes the client one of the cluster that has replaced its own. Nothing of the old one is
// held when it returns. The pin is first: a connection that begins meanwhile is then refused by one
// of the two.
func (g *guard) adopt(e *ClusterError) {
	g.cfg.Logger.Warn("the cluster was replaced by another one: all locks of the old one are lost, and this client goes on with the new one",
		"old", e.Want, "new", e.Cluster, "endpoint", e.Endpoint)
	g.mu.Lock()
	g.mu.pin = pin{e.Cluster, e.Endpoint}
	g.mu.Unlock()
	if g.lose != nil {
		g.lose(e)
	}
}

// ask asks all endpoints at the same time, and returns what those told that answered in time;
// empty: they do not tell.
func (g *guard) ask(ctx context.Context) []answer {
	ctx, cancel := context.WithTimeout(ctx, surveyLimit)
	defer cancel()
	all := make(chan *answer, len(g.cfg.Endpoints)) // nil: it did not answer
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

// askOne uses a connection of its own, since most clients never talk to most nodes again. It is nil
// without an answer.
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
	if ids := header.Get(clusterKey); len(ids) > 0 { // with an error too
		return &answer{endpoint, ids[0]}
	}
	if err != nil {
		return nil
	}
	return &answer{endpoint: endpoint}
}

// dial makes a connection on which every request names the cluster that is pinned, and every answer
// is looked at before anything else sees it.
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

// A guardedStream looks at the header before the first message, which it comes with, or the error
// in its place.
type guardedStream struct {
	grpc.ClientStream
	guard    *guard
	endpoint string
	looked   bool // of use to the reader alone
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
