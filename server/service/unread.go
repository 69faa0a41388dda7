package service

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// What was answered and not yet taken by its client is counted in bytes, for each connection, each
// address and the node. Above a bound reads are refused, before they are served, and again before
// their answer is added; answers that give and keep locks are never held back. A connection ends
// when its client has not taken, within Limits.Untaken, a message of a call that is still open or
// more than maxLost of answers.
const (
	// unreadShare is what a connection may have and still read while the node is above its bound, and
	// what the streams of a connection may have while its address is above its own.
	unreadShare = 256 << 10
	// maxLost bounds the answers of ended calls that may be overdue. gRPC does not give back the
	// buffer of an answer if the client cancels the call while the answer is on its way to the writer,
	// so some of these were never sent and nobody can take them.
	maxLost = 64 << 10
	// replyBytes is about what a reply takes that waits in an outbox.
	replyBytes = 256
)

// A ledger counts what is unread over all connections.
type ledger struct {
	limit   int64 // of the node; one address may have half
	timeout time.Duration
	used    atomic.Int64
	ended   atomic.Uint64 // connections whose client took nothing
}

// An account counts what is unread on a connection.
type account struct {
	ledger  *ledger
	limit   int64
	address *atomic.Int64 // unread bytes of all connections of its address
	reads   *meter
	end     func() // ends the connection; nil: it is this process's own, whose answers are always taken

	mu struct {
		sync.Mutex
		used    int64
		charges list.List // of *charge, oldest first
		timed   bool
		closed  bool // the connection has ended: nothing counts any more
	}
}

func newAccount(l *ledger, limit int64, end func()) *account {
	return &account{ledger: l, limit: limit, address: new(atomic.Int64), end: end}
}

// hold counts n bytes that wait to be sent on a stream, or reports that there is no room for them.
// What other addresses do not read takes no room from it.
func (a *account) hold(n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	limit := a.limit
	if !a.addressFits(n) {
		limit = min(limit, unreadShare)
	}
	if a.mu.used+n > limit {
		return false
	}
	a.addLocked(n)
	return true
}

// fits reports whether the answer of a read, of n bytes, is within the bounds.
func (a *account) fits(n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	nodeFits := a.end == nil || a.mu.used <= unreadShare || a.ledger.used.Load() <= a.ledger.limit
	return nodeFits && a.addressFits(n) && a.mu.used+n <= a.limit
}

// addressFits reports whether the address may have n bytes more.
func (a *account) addressFits(n int64) bool {
	return a.end == nil || a.address.Load()+n <= a.ledger.limit/2
}

// free uncounts what hold counted.
func (a *account) free(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addLocked(-n)
}

func (a *account) addLocked(n int64) {
	if !a.mu.closed {
		a.mu.used += n
		a.address.Add(n)
		a.ledger.used.Add(n)
	}
}

// empty reports whether nothing is unread. A nil account has nothing.
func (a *account) empty() bool {
	if a == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.used == 0
}

// close forgets what is unread: the connection has ended. A nil account has nothing.
func (a *account) close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addLocked(-a.mu.used)
	a.mu.closed = true
}

// look ends the connection if too much is overdue, and looks again when the next answer may be.
// Overdue answers of ended calls count for one more timeout; then they are dropped.
func (a *account) look() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.timed = false
	if a.mu.closed {
		return
	}
	overdue, next := int64(0), a.ledger.timeout
	for e := a.mu.charges.Front(); e != nil && overdue <= maxLost; {
		c := e.Value.(*charge)
		e = e.Next()
		age := time.Since(c.since)
		if age < a.ledger.timeout {
			next = a.ledger.timeout - age
			break
		}
		switch {
		case c.call.Err() == nil:
			overdue = maxLost + 1
		case age < 2*a.ledger.timeout:
			overdue += c.size
		default:
			a.dropLocked(c)
		}
	}
	switch {
	case overdue > maxLost:
		a.ledger.ended.Add(1)
		go a.end() // takes a.mu
	case a.mu.charges.Len() > 0:
		a.mu.timed = true
		time.AfterFunc(next, a.look)
	}
}

// dropLocked stops counting a charge. a.mu must be held.
func (a *account) dropLocked(c *charge) {
	a.addLocked(-c.size)
	c.size = 0
	if c.place != nil {
		a.mu.charges.Remove(c.place)
		c.place = nil
	}
}

// A charge is one encoded answer. gRPC returns the buffer, as to a pool, once it is written to the
// connection or its call is over.
type charge struct {
	account *account
	call    context.Context // done: the call has ended, and gRPC may have lost the buffer
	size    int64           // 0: it no longer counts
	since   time.Time
	place   *list.Element
	taken   bool
}

// smallAnswers have one size: gRPC returns no buffer of 1 KiB or less.
var smallAnswers = sync.Pool{New: func() any { b := make([]byte, 0, smallAnswer); return &b }}

const smallAnswer = 2 << 10

// buffer makes room for an answer of n bytes to a call and charges it.
func (a *account) buffer(call context.Context, n int) (*[]byte, *charge) {
	var b *[]byte
	if n <= smallAnswer {
		b = smallAnswers.Get().(*[]byte)
	} else {
		big := make([]byte, 0, n)
		b = &big
	}
	c := &charge{account: a, call: call, size: int64(cap(*b)), since: time.Now()}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addLocked(c.size)
	if a.end != nil {
		c.place = a.mu.charges.PushBack(c)
		if !a.mu.timed {
			a.mu.timed = true
			time.AfterFunc(a.ledger.timeout, a.look)
		}
	}
	return b, c
}

// Get is never called: a charge is the pool of one buffer.
func (c *charge) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put is called when the answer was taken. Calling it again does nothing.
func (c *charge) Put(b *[]byte) {
	c.account.mu.Lock()
	again := c.taken
	c.taken = true
	c.account.dropLocked(c)
	c.account.mu.Unlock()
	if !again && cap(*b) == smallAnswer {
		*b = (*b)[:0]
		smallAnswers.Put(b)
	}
}

// An addressed message knows whose answer it is when it is encoded.
type addressed struct {
	proto.Message
	account *account
	call    context.Context
}

// Marshal encodes a message; an addressed one is charged.
func (c tolerantCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(addressed)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	b, charge := m.account.buffer(m.call, proto.Size(m.Message))
	encoded, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(*b, m.Message)
	if err != nil {
		charge.Put(b)
		return nil, err
	}
	*b = encoded
	return mem.BufferSlice{mem.NewBuffer(b, charge)}, nil
}

// accountOf returns the account of the connection that a call came on.
func (s *Service) accountOf(ctx context.Context) *account {
	if c := connOf(ctx); c != nil && c.account != nil {
		return c.account
	}
	return s.own
}

// chargeUnary charges the answer of a call, and refuses a read whose client has not taken what it
// asked for before. It comes before all other interceptors, so that the connection is in use during
// the whole call.
func (s *Service) chargeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
	c := connOf(ctx)
	c.use(1)
	defer c.use(-1)
	a, read := s.accountOf(ctx), reads[info.FullMethod]
	if read && !a.fits(1) {
		return nil, s.refuse(tooMuchUnread())
	}
	if read && !sleep(ctx, s.readPause(ctx)) {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	resp, err := serve(ctx, req)
	m, ok := resp.(proto.Message)
	if err != nil || !ok {
		return resp, err
	}
	if read && !a.fits(int64(proto.Size(m))) {
		return nil, s.refuse(tooMuchUnread())
	}
	return addressed{m, a, ctx}, nil
}

// readPause returns how long a read has to wait until its connection is within its rate of reads: a
// read costs a node as much as a grant. A read that a node forwards has waited there.
func (s *Service) readPause(ctx context.Context) time.Duration {
	c := connOf(ctx)
	if c == nil || c.account == nil || s.passedOnByNode(ctx) {
		return 0
	}
	return c.account.reads.take(time.Now(), 1)
}

// reads are the calls whose answers may exceed a few KiB.
var reads = map[string]bool{
	pb.LockService_GetLock_FullMethodName:      true,
	pb.LockService_ListLocks_FullMethodName:    true,
	pb.LockService_ListSessions_FullMethodName: true,
	pb.LockService_History_FullMethodName:      true,
}

func tooMuchUnread() *pb.Error {
	return &pb.Error{
		Reason:  pb.Reason_REASON_OVERLOADED,
		Message: "too many answers wait to be read on this connection, address or node: read them, or ask for fewer at a time",
	}
}

// chargeStream charges what is sent on a stream.
func (s *Service) chargeStream(srv any, g grpc.ServerStream, _ *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
	c := connOf(g.Context())
	c.use(1)
	defer c.use(-1)
	return serve(srv, &chargedStream{g, s.accountOf(g.Context())})
}

type chargedStream struct {
	grpc.ServerStream
	account *account
}

// SendMsg sends a message.
func (c *chargedStream) SendMsg(m any) error {
	if p, ok := m.(proto.Message); ok {
		m = addressed{p, c.account, c.Context()}
	}
	return c.ServerStream.SendMsg(m)
}

// Unread tells how many bytes of answers wait to be taken, how many connections were ended because
// nobody took theirs, and how many watches are under way.
func (s *Service) Unread() (bytes int64, ended uint64, watches int64) {
	return s.unread.used.Load(), s.unread.ended.Load(), int64(s.watches.count())
}
