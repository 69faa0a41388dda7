package service

import (
	"sync"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// An outbox holds what waits to be sent to one client. The node's loop and the stream's reader add
// to it, and the writer takes from it.
type outbox struct {
	limit   int
	account *account      // nil: waiting replies are not counted there
	wake    chan struct{} // holds one token while there is something to take

	mu struct {
		sync.Mutex
		replies []lead.Reply
		events  []*pb.ServerEvent // refusals of requests that the node never saw
		size    int               // of both, see sizeOf
		held    int64             // counted by the account
		full    bool              // limit was exceeded: all were dropped, and nothing more is added
	}
}

func newOutbox(limit int) *outbox {
	return &outbox{limit: limit, wake: make(chan struct{}, 1)}
}

// deliver adds replies; the outbox owns the slice. It is called on the node's loop and does not
// block.
func (o *outbox) deliver(replies []lead.Reply) {
	size := 0
	for i := range replies {
		size += sizeOf(&replies[i])
	}
	o.mu.Lock()
	switch {
	case !o.hasRoomLocked(size):
	case o.mu.replies == nil:
		o.mu.replies = replies
	default:
		o.mu.replies = append(o.mu.replies, replies...)
	}
	o.mu.Unlock()
	o.signal()
}

// sizeOf counts a reply as one, or more if it names many holders: a reply with 16 holders takes ten
// times the memory of a plain one.
func sizeOf(r *lead.Reply) int {
	switch a := r.Answer.(type) {
	case lead.Claimed:
		return 1 + len(a.Claim.Blockers)/4
	case lead.Refused:
		return 1 + len(a.Claim.Blockers)/4
	default:
		return 1
	}
}

// refuse adds the answer to a request that the node never saw.
func (o *outbox) refuse(e *pb.ServerEvent) {
	o.mu.Lock()
	if o.hasRoomLocked(1) {
		o.mu.events = append(o.mu.events, e)
	}
	o.mu.Unlock()
	o.signal()
}

// hasRoomLocked takes room for n more, or reports that there is none. In that case the client is
// too slow, and the stream is lost: what waits is dropped at once, since its writer may be stuck
// for long. o.mu must be held.
func (o *outbox) hasRoomLocked(n int) bool {
	if o.mu.size += n; o.mu.size > o.limit || !o.mu.full && !o.holdLocked(int64(n)*replyBytes) {
		o.mu.full, o.mu.replies, o.mu.events = true, nil, nil
		o.freeLocked()
	}
	return !o.mu.full
}

func (o *outbox) holdLocked(n int64) bool {
	if o.account == nil {
		return true
	}
	if !o.account.hold(n) {
		return false
	}
	o.mu.held += n
	return true
}

func (o *outbox) freeLocked() {
	if o.mu.held > 0 {
		o.account.free(o.mu.held)
		o.mu.held = 0
	}
}

func (o *outbox) isFull() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.full
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default: // the writer has not looked yet; it will see this too
	}
}

// close drops what waits, and whatever is added later.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.full, o.mu.replies, o.mu.events = true, nil, nil
	o.freeLocked()
}

// take empties the outbox. full means that some replies were dropped: the stream cannot continue.
func (o *outbox) take() (replies []lead.Reply, events []*pb.ServerEvent, full bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	replies, events = o.mu.replies, o.mu.events
	o.mu.replies, o.mu.events, o.mu.size = nil, nil, 0
	o.freeLocked()
	return replies, events, o.mu.full
}
