package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/lease"
)

// statusTimeout bounds a status request to one node, and tryTimeout one attempt of a call before
// another node is tried: a node that hangs must not block the caller.
const (
	statusTimeout = 2 * time.Second
	tryTimeout    = 3 * time.Second
)

// An Admin reads the state of a cluster and performs operator tasks. It finds the leader, and keeps
// a connection to each node that it has contacted. It has no session and no goroutines.
type Admin struct {
	cfg   Config
	guard *guard
	mu    struct {
		sync.Mutex
		conns  map[string]*grpc.ClientConn
		find   *finder
		leader string // the node that answered last; empty = not known
		closed bool
	}
}

// NewAdmin returns an Admin. It does no I/O. From cfg it uses Endpoints, Credentials, DialOptions,
// Cluster, UnavailableAfter, Logger and Clock.
func NewAdmin(cfg Config) (*Admin, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return newAdmin(cfg, newGuard(cfg)), nil
}

// Cluster is the id of the cluster that the Admin belongs to; empty until a node has reported it.
func (a *Admin) Cluster() string { return a.guard.cluster() }

func newAdmin(cfg Config, g *guard) *Admin {
	a := &Admin{cfg: cfg, guard: g}
	a.mu.conns = make(map[string]*grpc.ClientConn)
	a.mu.find = newFinder(cfg.Endpoints)
	return a
}

// Close closes the connections. It is idempotent.
func (a *Admin) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.closed = true
	var errs []error
	for _, conn := range a.mu.conns {
		errs = append(errs, conn.Close())
	}
	clear(a.mu.conns)
	return errors.Join(errs...)
}

// A NodeStatus is what one node reports about itself and the cluster.
type NodeStatus struct {
	Endpoint string
	Status   *pb.StatusResponse // nil if Err is set
	Err      error              // why the node did not answer
}

// Status asks every endpoint at the same time, for at most 2 s. It needs no quorum. The results are
// in the order of Config.Endpoints; a node of another cluster has the error [ErrTwoClusters].
func (a *Admin) Status(ctx context.Context) []NodeStatus { return a.StatusAt(ctx, a.cfg.Endpoints) }

// StatusAt is Status for other addresses, such as those of the members that a node has listed.
func (a *Admin) StatusAt(ctx context.Context, addresses []string) []NodeStatus {
	out := make([]NodeStatus, len(addresses))
	var asked sync.WaitGroup
	for i, e := range addresses {
		asked.Go(func() {
			out[i] = NodeStatus{Endpoint: e}
			conn, err := a.conn(e)
			if err != nil {
				out[i].Err = err
				return
			}
			ctx, cancel := context.WithTimeout(ctx, statusTimeout)
			defer cancel()
			out[i].Status, err = pb.NewAdminServiceClient(conn).Status(ctx, &pb.StatusRequest{})
			if err != nil {
				out[i].Err = statusError(e, err)
			}
		})
	}
	asked.Wait()
	return out
}

// statusError is the error of a call to one node. If the service did not answer, it names the node.
func statusError(endpoint string, err error) error {
	if failed := fromCall(err); !errors.Is(failed, lockstep.ErrUnavailable) || wireError(err) != nil {
		return failed
	}
	return &OutageError{Answers: []EndpointAnswer{answerOf(endpoint, err)}}
}

// Lock reads one lock, with at most 1,000 holders and at most the given number of waiters; 0 means
// 100.
func (a *Admin) Lock(ctx context.Context, name string, waiters uint32) (*pb.Lock, error) {
	r, err := call(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.GetLockResponse, error) {
		return pb.NewLockServiceClient(conn).GetLock(ctx, &pb.GetLockRequest{Name: name, WaiterLimit: waiters})
	})
	if err != nil {
		return nil, &lockstep.OpError{Op: "inspect", Lock: name, Err: err}
	}
	return r.GetLock(), nil
}

// Locks reads one page of the locks whose names begin with prefix, in byte order of their names.
// pageToken is the token from the previous page, empty for the first; size 0 means 100.
func (a *Admin) Locks(ctx context.Context, prefix, pageToken string, size uint32) (locks []*pb.Lock, next string, err error) {
	r, err := call(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.ListLocksResponse, error) {
		return pb.NewLockServiceClient(conn).ListLocks(ctx, &pb.ListLocksRequest{Prefix: prefix, PageToken: pageToken, PageSize: size})
	})
	if err != nil {
		return nil, "", &lockstep.OpError{Op: "list", Lock: prefix, Err: err}
	}
	return r.GetLocks(), r.GetNextPageToken(), nil
}

// History reads the newest events of a name, at most limit, oldest first; 0 means 100. It is
// complete if no older event of the name may have been dropped.
func (a *Admin) History(ctx context.Context, name string, limit uint32) (events []*pb.Event, complete bool, err error) {
	r, err := call(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.HistoryResponse, error) {
		return pb.NewLockServiceClient(conn).History(ctx, &pb.HistoryRequest{Name: name, Limit: limit})
	})
	if err != nil {
		return nil, false, &lockstep.OpError{Op: "history", Lock: name, Err: err}
	}
	return r.GetEvents(), r.GetComplete(), nil
}

// A Revocation says who revokes and why.
type Revocation struct {
	By     string // shown to the holder and in the history
	Reason string // must not be empty
	// Token, if not zero, limits a lock's revocation to the grant with this token.
	Token lockstep.Token
	// Now passes the lock on without waiting until its holder knows: two holders may then have it
	// at once.
	Now bool
}

// RevokeLock ends the current grants of a name and returns how many it ended. It reads the holders
// first and revokes those grants by their tokens, so a repeated request never hits a later holder.
// If a lock has more than 1,000 holders, it revokes all of them; revoking one of them by its token
// returns [lockstep.ErrQuota] if that one is not among the first 1,000.
func (a *Admin) RevokeLock(ctx context.Context, name string, r Revocation) (ended int, err error) {
	l, err := a.Lock(ctx, name, 1)
	if err != nil {
		return 0, err
	}
	if shown := len(l.GetHolders()); l.GetHolderCount() > uint64(shown) && (r.Token == 0 || !hasToken(l, r.Token)) {
		return a.revokeCrowd(ctx, l, r)
	}
	for _, h := range l.GetHolders() {
		if h.GetClosing() && !r.Now || r.Token != 0 && h.GetToken() != uint64(r.Token) {
			continue
		}
		n, err := a.revokeGrant(ctx, name, h, r)
		ended += n
		if err != nil {
			return ended, &lockstep.OpError{Op: "revoke", Lock: name, Err: err}
		}
	}
	return ended, nil
}

func hasToken(l *pb.Lock, token lockstep.Token) bool {
	return slices.ContainsFunc(l.GetHolders(), func(h *pb.Holder) bool { return h.GetToken() == uint64(token) })
}

// revokeCrowd ends the grants of a lock with more holders than were read, by the highest token that
// any of them can have.
func (a *Admin) revokeCrowd(ctx context.Context, l *pb.Lock, r Revocation) (ended int, err error) {
	if r.Token != 0 {
		err = fmt.Errorf("%w: the lock has %d holders, and the one with token %d is not among the first %d: revoke its session instead",
			lockstep.ErrQuota, l.GetHolderCount(), r.Token, len(l.GetHolders()))
	} else {
		ended, _, err = a.revoke(ctx, &pb.RevokeRequest{
			Target: &pb.RevokeRequest_Name{Name: l.GetName()}, LastToken: l.GetNextToken() - 1, By: r.By, Reason: r.Reason, Now: r.Now,
		})
	}
	if err != nil {
		err = &lockstep.OpError{Op: "revoke", Lock: l.GetName(), Err: err}
	}
	return ended, err
}

// revokeGrant ends one grant. If a response was lost, the response to the repeated request says
// that the grant was already over; the history shows who ended it.
func (a *Admin) revokeGrant(ctx context.Context, name string, h *pb.Holder, r Revocation) (ended int, err error) {
	target := &pb.RevokeRequest_Claim{Claim: &pb.RevokeClaim{Session: h.GetSession(), Seq: h.GetSeq(), Token: h.GetToken()}}
	ended, tries, err := a.revoke(ctx, &pb.RevokeRequest{Target: target, By: r.By, Reason: r.Reason, Now: r.Now})
	if err != nil || ended > 0 || tries == 1 {
		return ended, err
	}
	events, _, err := a.History(ctx, name, 0)
	for _, e := range events {
		if e.GetKind() == pb.EventKind_EVENT_KIND_REVOKED && e.GetSession() == h.GetSession() && e.GetSeq() == h.GetSeq() &&
			e.GetBy() == r.By && e.GetReason() == r.Reason {
			return 1, nil
		}
	}
	return 0, err
}

// RevokeSession ends a session with all its claims and returns how many it ended.
func (a *Admin) RevokeSession(ctx context.Context, id string, r Revocation) (ended int, err error) {
	target := &pb.RevokeRequest_Session{Session: id}
	n, _, err := a.revoke(ctx, &pb.RevokeRequest{Target: target, By: r.By, Reason: r.Reason, Now: r.Now})
	if err != nil {
		return n, fmt.Errorf("revoke session %s: %w", lockstep.Excerpt(id), err)
	}
	return n, nil
}

// revoke returns how many claims the last request ended, and how many requests it took.
func (a *Admin) revoke(ctx context.Context, r *pb.RevokeRequest) (ended, tries int, err error) {
	resp, err := change(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.RevokeResponse, error) {
		tries++
		return pb.NewAdminServiceClient(conn).Revoke(ctx, r)
	})
	return int(resp.GetRevoked()), tries, err
}

// Inspect implements [lockstep.Inspector].
func (c *Client) Inspect(ctx context.Context, name string) (lockstep.State, error) {
	if err := lockstep.CheckName(name); err != nil {
		return lockstep.State{}, &lockstep.OpError{Op: "inspect", Lock: name, Err: err}
	}
	l, err := c.admin.Lock(ctx, name, 0)
	if err != nil {
		return lockstep.State{}, err
	}
	return stateOf(name, l), nil
}

func stateOf(name string, l *pb.Lock) lockstep.State {
	return lockstep.State{
		Name:      name,
		Holders:   claimsOf(l.GetHolders()),
		Waiters:   claimsOf(l.GetWaiters()),
		NextToken: lockstep.Token(l.GetNextToken()),
	}
}

// call makes a repeatable call on the leader: it tries the nodes in turn, following their hints,
// until one answers, for at most Config.UnavailableAfter.
func call[R any](ctx context.Context, a *Admin, f func(context.Context, *grpc.ClientConn) (R, error)) (R, error) {
	var none R
	backoff := lease.Backoff{Base: firstPause, Max: longestWait}
	started := a.cfg.Clock.Now()
	if err := a.guard.check(ctx); err != nil {
		return none, err
	}
	for {
		addr, pause, conn, err := a.node()
		if err != nil {
			return none, err
		}
		if pause {
			select {
			case <-ctx.Done():
			case <-time.After(backoff.Next()):
			}
		}
		try, cancel := context.WithTimeout(ctx, tryTimeout)
		r, err := f(try, conn)
		cancel()
		if err == nil {
			a.answered(addr)
			return r, nil
		}
		if ctx.Err() != nil {
			return none, fmt.Errorf("%w: %w", ended(ctx), a.guard.tally.summary(fromCall(err)))
		}
		again, err := a.again(ctx, addr, err)
		if !again {
			return none, err
		}
		if after := a.cfg.UnavailableAfter; after >= 0 && a.cfg.Clock.Now() > started+after {
			return none, a.guard.tally.summary(err)
		}
	}
}

// change is a call that changes something. If it fails but may have taken effect, its error is
// [lockstep.ErrUncertain].
func change[R any](ctx context.Context, a *Admin, f func(context.Context, *grpc.ClientConn) (R, error)) (R, error) {
	maybe := false
	r, err := call(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (R, error) {
		r, err := f(ctx, conn)
		maybe = maybe || mayTakeEffect(err)
		return r, err
	})
	if err != nil && maybe {
		err = uncertainty(err)
	}
	return r, err
}

// node returns the node to try next.
func (a *Admin) node() (addr string, pause bool, conn *grpc.ClientConn, err error) {
	a.mu.Lock()
	if addr = a.mu.leader; addr == "" {
		addr, pause = a.mu.find.next()
	}
	a.mu.Unlock()
	conn, err = a.conn(addr)
	return addr, pause, conn, err
}

func (a *Admin) conn(addr string) (*grpc.ClientConn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed {
		return nil, lockstep.ErrClosed
	}
	if conn := a.mu.conns[addr]; conn != nil {
		return conn, nil
	}
	if len(a.mu.conns) >= 2*maxEndpoints { // hints may name any number of nodes
		return nil, fmt.Errorf("%w: followed too many leader redirects", lockstep.ErrUnavailable)
	}
	conn, err := a.guard.dial(addr)
	if err == nil {
		a.mu.conns[addr] = conn
	}
	return conn, err
}

func (a *Admin) answered(addr string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.leader = addr
	a.mu.find.found(addr)
	a.guard.tally.served()
}

// again records a failed call and reports whether to retry it. The error is the one to return if
// not.
func (a *Admin) again(ctx context.Context, addr string, err error) (bool, error) {
	elsewhere := a.elsewhere(addr, err)
	if wireError(err) != nil && !elsewhere { // the node serves, and refuses
		a.guard.tally.served()
	} else {
		a.guard.tally.failed(answerOf(addr, err))
	}
	e, ok := errors.AsType[*ClusterError](err)
	if !ok {
		return elsewhere, statusError(addr, err)
	}
	if err := a.guard.reconsider(ctx, e); err != nil {
		return false, err
	}
	return true, fmt.Errorf("%w: %w", lockstep.ErrUnavailable, withoutCode(e))
}

// elsewhere records a failed call and reports whether another node, or the same one later, may
// answer it.
func (a *Admin) elsewhere(addr string, err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.leader = ""
	now := a.cfg.Clock.Now()
	e := wireError(err)
	switch {
	case e == nil:
		a.mu.find.unreachable(now, addr)
		return status.Code(err) == codes.Unavailable || status.Code(err) == codes.DeadlineExceeded
	case e.GetReason() == pb.Reason_REASON_NOT_LEADER || e.GetReason() == pb.Reason_REASON_UNAVAILABLE:
		a.mu.find.leads(now, e.GetLeaderAddress())
		return true
	case e.GetReason() == pb.Reason_REASON_OVERLOADED:
		return true
	case e.GetReason() == pb.Reason_REASON_WRONG_CLUSTER: // the client has switched to the node's cluster since the call started
		return true
	}
	return false
}
