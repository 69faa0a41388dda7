package node

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/replica"
)

// Bounds of the inbox. The loop empties it every turn, so they are reached only when the node can't
// keep up.
const (
	// maxNew is how many requests for new work (Open, Acquire, Revoke, reads) may wait.
	maxNew = 16_384
	// maxRequests is how many requests may wait that must go on under load: keepalives, releases,
	// cancels, closes. 50,000 sessions can renew at once.
	maxRequests = 131_072
	// maxMessages is how many messages from peers may wait. Further ones are dropped: Raft repeats
	// them.
	maxMessages = 8_192
	// maxTurn is how many requests one turn takes, so that messages from peers get their turn.
	maxTurn = 4_096
)

// An inbox is where everything arrives that the loop has to process.
type inbox struct {
	wake chan struct{} // holds one; something has arrived

	mu struct {
		sync.Mutex
		requests []lead.Request
		inputs   []replica.Input
		messages int // among inputs
		stopped  bool
	}
}

func newInbox() inbox { return inbox{wake: make(chan struct{}, 1)} }

// ring wakes the loop. One ring covers everything that arrives before the loop looks.
func (b *inbox) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// refusable reports whether a request asks for new work. The others end or keep what exists, and
// have to pass even when new work is refused.
func refusable(body lead.Body) bool {
	switch body.(type) {
	case lead.Open, lead.Acquire, lead.Revoke, lead.ReadLock, lead.ReadLocks, lead.ReadSessions, lead.ReadHistory:
		return true
	}
	return false
}

func (b *inbox) submit(reqs []lead.Request) error {
	limit := maxRequests
	for i := range reqs {
		if refusable(reqs[i].Body) {
			limit = maxNew
			break
		}
	}
	b.mu.Lock()
	switch {
	case b.mu.stopped:
		b.mu.Unlock()
		return ErrStopped
	case len(b.mu.requests)+len(reqs) > limit:
		b.mu.Unlock()
		return ErrOverloaded
	}
	b.mu.requests = append(b.mu.requests, reqs...)
	b.mu.Unlock()
	b.ring()
	return nil
}

// force adds a request that must not be lost: the end of a stream. There are never more of those
// than streams.
func (b *inbox) force(r lead.Request) {
	b.mu.Lock()
	if !b.mu.stopped {
		b.mu.requests = append(b.mu.requests, r)
	}
	b.mu.Unlock()
	b.ring()
}

// push adds a report from one of the node's own parts. Each of them has at most a few reports open.
func (b *inbox) push(in replica.Input) {
	b.mu.Lock()
	if !b.mu.stopped {
		b.mu.inputs = append(b.mu.inputs, in)
	}
	b.mu.Unlock()
	b.ring()
}

// receive adds messages from a peer as far as there is room.
func (b *inbox) receive(msgs []*raftpb.Message) {
	b.mu.Lock()
	if b.mu.stopped {
		msgs = nil
	}
	msgs = msgs[:min(len(msgs), maxMessages-b.mu.messages)]
	for _, m := range msgs {
		b.mu.inputs = append(b.mu.inputs, replica.Message{Message: m})
	}
	b.mu.messages += len(msgs)
	b.mu.Unlock()
	b.ring()
}

// A load is what one turn takes from the inbox. The next turn reuses its slices.
type load struct {
	inputs   []replica.Input
	requests []lead.Request
	rest     []lead.Request // of requests, not given to the replica yet
}

// drain takes everything, and leaves the slices of the previous turn, which are no longer in use.
func (b *inbox) drain(l *load) {
	clear(l.inputs)
	inputs := l.inputs[:0]
	b.mu.Lock()
	l.inputs, b.mu.inputs = b.mu.inputs, inputs
	b.mu.messages = 0
	if len(l.rest) == 0 {
		clear(l.requests)
		l.requests, b.mu.requests = b.mu.requests, l.requests[:0]
		l.rest = l.requests
	}
	b.mu.Unlock()
}

// take returns the requests of one turn.
func (l *load) take() []lead.Request {
	k := min(len(l.rest), maxTurn)
	now := l.rest[:k]
	l.rest = l.rest[k:]
	return now
}

func (b *inbox) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.stopped = true
	b.mu.inputs, b.mu.requests = nil, nil
}

func (b *inbox) stopped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.stopped
}
