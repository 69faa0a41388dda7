package zklock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A session is one session with ZooKeeper and the client that serves it. It is over when its lease
// is, for good.
type session struct {
	cfg    Config
	clock  lease.Clock
	wire   *wire
	conn   *zk.Conn
	events <-chan zk.Event
	id     int64
	timing timing
	state  *lease.State
	lease  *locker.Lease // of the state; nil before the session is opened

	isRegistered atomic.Bool // its node was created
	watches      watches
	done         chan struct{} // closed when nothing of it is running

	mu struct {
		sync.Mutex
		isShut bool // once set, no call begins
		calls  sync.WaitGroup
	}
}

// connect starts the client of a session that is not open yet: begin opens it. Either run or
// abandon must end it.
func connect(cfg Config, clock lease.Clock) (*session, error) {
	w := newWire(cfg, clock)
	conn, events, err := zk.Connect(cfg.Servers, cfg.TTL, zk.WithDialer(w.dial), zk.WithHostProvider(w),
		zk.WithLogger(libraryLog{cfg.Logger}), zk.WithLogInfo(false))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", lockstep.ErrUnavailable, err)
	}
	s := &session{cfg: cfg, clock: clock, wire: w, conn: conn, events: events, done: make(chan struct{})}
	s.watches.changed = map[string]*watch{}
	return s, nil
}

// begin waits for the session and creates what all its claims need, or gives up when ctx is done.
func (s *session) begin(ctx context.Context) error {
	select {
	case o := <-s.wire.opened:
		if err := s.adopt(o); err != nil {
			return err
		}
	case <-ctx.Done():
		return fmt.Errorf("%w: no server of %q has opened a session", lockstep.ErrUnavailable, s.cfg.Servers)
	}
	if err := errors.Join(s.authenticate(ctx), s.register(ctx)); err != nil {
		return s.unavailable(err)
	}
	return nil
}

// unavailable marks an error without a more specific meaning: no claim was made yet.
func (s *session) unavailable(err error) error {
	if isBroken(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, lockstep.ErrLost) {
		return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, err)
	}
	return err
}

// adopt starts the lease of an opened session.
func (s *session) adopt(o opening) error {
	if o.timeout < lockstep.MinTTL {
		return fmt.Errorf("%w: the servers end sessions after %v (maxSessionTimeout), it must be %v at least", lockstep.ErrUnsupported, o.timeout, lockstep.MinTTL)
	}
	if o.timeout != s.cfg.TTL {
		s.cfg.Logger.Warn("the servers grant another session timeout than the TTL", "ttl", s.cfg.TTL, "granted", o.timeout)
	}
	s.id, s.timing = o.id, newTiming(o.timeout, s.cfg.TickTime)
	s.state = lease.New(o.timeout)
	if !s.state.Confirm(s.clock.Now(), s.state.Sending(o.sent)) {
		return fmt.Errorf("%w: the answer that opened the session came too late", lockstep.ErrUnavailable)
	}
	s.lease = locker.KeepLeaseSince(s.clock, s.state, s.renew)
	return nil
}

// authenticate presents the credentials; the library does so again on each connection.
func (s *session) authenticate(ctx context.Context) error {
	if s.cfg.User == "" {
		return nil
	}
	_, err := retry(ctx, s, func(conn *zk.Conn) (struct{}, error) {
		return struct{}{}, conn.AddAuth("digest", []byte(s.cfg.User+":"+s.cfg.Password))
	})
	return err
}

// node is the session's own node. Its name has the session's id, so no other session can have
// created it.
func (s *session) node() string { return s.cfg.Root + "/sessions/" + s.owner() }

// owner is the public name of the session: its id, as shown by ZooKeeper's tools.
func (s *session) owner() string { return fmt.Sprintf("0x%x", uint64(s.id)) }

// register creates the session's own node.
func (s *session) register(ctx context.Context) error {
	err := s.create(ctx, s.node(), zk.FlagEphemeral)
	if errors.Is(err, zk.ErrNoNode) {
		if err = s.createAll(ctx, s.cfg.Root+"/sessions"); err == nil {
			err = s.create(ctx, s.node(), zk.FlagEphemeral)
		}
	}
	s.isRegistered.Store(err == nil)
	return err
}

// run serves the session until its lease is over, and then also ends it in ZooKeeper, if it can.
func (s *session) run() {
	defer close(s.done)
	beats := time.NewTicker(s.timing.beatEvery())
	defer beats.Stop()
	for {
		select {
		case <-s.over().Done():
			s.cfg.Logger.Info("a session is over", "session", s.owner(), "cause", context.Cause(s.over()))
			s.shut()
			return
		case <-s.wire.expired:
			s.lease.End(explain(zk.ErrSessionExpired))
		case <-s.wire.resumed:
			s.renewNow()
			s.recheck()
		case <-beats.C:
			s.beat()
		}
	}
}

// abandon ends a session that begin could not open.
func (s *session) abandon(cause error) {
	defer close(s.done)
	if s.lease != nil {
		s.lease.End(cause)
	}
	s.shut()
}

// over returns a context that is done when the session is over.
func (s *session) over() context.Context { return s.lease.Context() }

// isExpired reports whether ZooKeeper has said that the session is over: its nodes are gone, or
// will be before anyone can look for them.
func (s *session) isExpired() bool {
	select {
	case <-s.wire.expired:
		return true
	default:
		return false
	}
}

// beat gives the server a sign of life. The answer is recorded as evidence: see call.
func (s *session) beat() {
	ctx, cancel := context.WithTimeout(s.over(), quietFor(s.timing.timeout))
	defer cancel()
	call(ctx, s, func(conn *zk.Conn) (bool, error) { // a missing answer only means no evidence
		exists, _, err := conn.Exists(s.node())
		return exists, err
	})
}

// renew renews the lease once, for [locker.KeepLeaseSince].
func (s *session) renew(ctx context.Context) (since time.Duration, err error) {
	connection, sent := s.wire.evidence.present(), s.clock.Now()
	_, err = call(ctx, s, func(conn *zk.Conn) (*zk.Stat, error) { return conn.Set(s.node(), nil, -1) })
	switch {
	case errors.Is(err, zk.ErrNoNode) && s.isRegistered.Load():
		return 0, missing("the session's node was deleted")
	case err != nil:
		return 0, err
	default:
		return s.wire.evidence.wrote(connection, sent), nil
	}
}

// renewNow renews the lease ahead of schedule. After a reconnection the leader has just heard from
// the session, and a confirmed write proves that it was the real leader, so there is no reason to
// wait for the next renewal.
func (s *session) renewNow() {
	ctx, cancel := context.WithTimeout(s.over(), quietFor(s.timing.timeout))
	defer cancel()
	if since, err := s.renew(ctx); err == nil {
		s.state.Confirm(s.clock.Now(), s.state.Sending(since))
	}
}

// answerWithin is how long calls in progress may take to end before the session is closed under
// them.
const answerWithin = 200 * time.Millisecond

// shut closes the session, with a request if a server can be reached within a second, and waits for
// everything that it has started.
func (s *session) shut() {
	s.mu.Lock()
	s.mu.isShut = true
	s.mu.Unlock()
	s.awaitCalls()
	s.conn.Close()
	s.wire.close()
	for range s.events { // closed when the library's goroutines end
	}
	s.mu.calls.Wait()
	if s.lease != nil {
		s.closeWatches()
	}
}

// awaitCalls waits for the calls in progress, but not for long: they end soon unless the connection
// is dead.
func (s *session) awaitCalls() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.mu.calls.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(answerWithin):
	}
}

// libraryLog forwards the library's log.
type libraryLog struct{ to *slog.Logger }

func (l libraryLog) Printf(format string, args ...any) {
	l.to.Debug("zookeeper client", "message", fmt.Sprintf(format, args...))
}
