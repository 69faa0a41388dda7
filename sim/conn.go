package sim

import (
	"fmt"
	"slices"
	"time"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// A conn is a client's stream at a node: two ordered pipes. Like a TCP connection it loses nothing
// while both ends live: what cannot get through waits.
type conn struct {
	w      *world
	id     lead.StreamID
	client *client
	node   *node
	life   int  // of the node's process
	open   bool // at the client's end
	served bool // at the node's end
	deaf   bool // nothing gets through any longer, silently

	up, down pipe
	reached  map[uint64]time.Duration // true time at which the node read each keepalive, by number
	lateTill time.Duration            // changes are held back until then
	late     []*pb.ServerEvent        // what is held back
}

// A pipe is one direction of a conn.
type pipe struct {
	w        *world
	from, to int // machines
	deaf     *bool
	queue    []parcel
	last     time.Duration
	extra    time.Duration // additional time that every parcel takes
	waiting  bool          // for the link to open
}

type parcel struct {
	at time.Duration
	do func()
}

// retransmit is how often a blocked pipe tries again.
const retransmit = 150 * time.Millisecond

func (p *pipe) put(do func()) {
	p.last = max(p.last, p.w.now+p.w.net.delay()+p.extra)
	p.queue = append(p.queue, parcel{p.last, do})
	p.w.at(p.last, p.flush)
}

func (p *pipe) flush() {
	for len(p.queue) > 0 && p.queue[0].at <= p.w.now {
		if *p.deaf || !p.w.net.open(p.from, p.to) {
			if !p.waiting {
				p.waiting = true
				p.w.after(retransmit, func() { p.waiting = false; p.flush() })
			}
			return
		}
		do := p.queue[0].do
		p.queue = p.queue[1:]
		do()
	}
}

// dial connects the client to the node. connected is called at the client when the node answers,
// failed when it does not.
func (c *client) dial(n *node, connected func(*conn), failed func()) {
	w := c.w
	w.after(w.net.delay(), func() {
		switch {
		case !w.net.open(c.machine, n.index) || !w.net.open(n.index, c.machine):
			w.after(time.Second, failed) // no answer: the dial times out
		case !n.up():
			w.after(w.net.delay(), failed) // refused by the host
		default:
			w.streams++
			k := &conn{w: w, id: w.streams, client: c, node: n, life: n.life, open: true, served: true}
			k.reached = map[uint64]time.Duration{}
			k.up = pipe{w: w, from: c.machine, to: n.index, deaf: &k.deaf}
			k.down = pipe{w: w, from: n.index, to: c.machine, deaf: &k.deaf}
			n.streams[k.id] = k
			w.after(w.net.delay(), func() { connected(k) })
		}
	})
}

// send carries the client's requests to the replica, through the form checks.
func (k *conn) send(rs []*pb.ClientRequest) {
	if !k.open || len(rs) == 0 {
		return
	}
	k.up.put(func() {
		if !k.served {
			return
		}
		for _, r := range rs {
			q, refusal := protocol.FromClient(k.id, 0, r, k.w.secrets)
			if refusal != nil {
				k.toClient(&pb.ServerEvent{Tag: r.GetTag(), Session: r.GetSession(), Body: &pb.ServerEvent_Error{Error: refusal}})
				continue
			}
			q.From = lead.Origin{Connection: uint64(k.id), Address: fmt.Sprint("machine ", k.client.machine)}
			k.node.request(k.client.machine, q)
		}
	})
}

// fromServer carries a reply of the replica to the client. While the late fault is on, changes are
// delayed past the answers given after them, but not past what says that nothing more will come.
func (k *conn) fromServer(r lead.Reply) {
	e := protocol.ToClient(r)
	if bad := e.GetError(); bad.GetReason() == pb.Reason_REASON_NOT_LEADER {
		bad.LeaderAddress = k.w.leaderHint(k.node)
	}
	switch a := r.Answer.(type) {
	case lead.Kept:
		k.w.book.SetNow(k.w.now)
		k.w.book.Confirmed(k.node.led, r.Session)
		k.w.check(k.w.book.Renews(k.node.led, k.reached[a.Number]))
		delete(k.reached, a.Number)
	case lead.Refused:
		clear(k.reached)
	case lead.Changed:
		if k.w.now < k.lateTill {
			k.w.count(changeHeldBack)
			k.late = append(k.late, e)
			return
		}
	case lead.Attached, lead.Ended:
		k.releaseLate()
	}
	k.toClient(e)
}

// waits reports whether the node still leads the term and has the stream, so that a keepalive that
// it has read is not lost.
func (k *conn) waits(term uint64) bool {
	return k.served && k.node.up() && k.node.life == k.life && k.node.led == term
}

// endLate ends the fault.
func (k *conn) endLate() {
	k.lateTill = 0
	k.releaseLate()
}

// releaseLate sends the changes that were held back.
func (k *conn) releaseLate() {
	late := k.late
	k.late = nil
	for _, e := range late {
		k.toClient(e)
	}
}

func (k *conn) toClient(e *pb.ServerEvent) {
	if !k.served {
		return
	}
	k.down.put(func() {
		if k.open {
			k.client.deliver(func() { k.client.event(k, e) })
		}
	})
}

// hangUp is the client's end of the stream: the node learns of it after what is in flight, of which
// some may be lost.
func (k *conn) hangUp() {
	if !k.open {
		return
	}
	k.open = false
	if k.client.rnd.chance(0.3) {
		k.up.queue = k.up.queue[:k.client.rnd.IntN(len(k.up.queue)+1)]
	}
	k.up.put(k.gone)
}

// gone reports to the replica that the stream is over.
func (k *conn) gone() {
	if !k.served {
		return
	}
	k.served = false
	if k.node.life != k.life || !k.node.up() {
		return
	}
	delete(k.node.streams, k.id)
	k.node.request(k.client.machine, lead.Request{Stream: k.id, Body: lead.Gone{}})
}

// tear breaks the connection in the middle: both ends learn of it separately.
func (k *conn) tear() {
	k.w.count(streamTorn)
	k.up.queue, k.down.queue = nil, nil
	k.w.after(k.w.net.delay(), k.gone)
	k.w.after(k.w.net.delay(), func() { k.lost() })
}

// lost reports to the client that the connection is gone.
func (k *conn) lost() {
	if !k.open {
		return
	}
	k.open = false
	k.client.deliver(func() { k.client.hungUp(k) })
}

// serverGone is the end of the node's process. Its host reports it, or is gone as well.
func (k *conn) serverGone() {
	k.served = false
	if k.client.rnd.chance(0.8) {
		k.w.after(k.w.net.delay(), k.lost)
	}
}

// sortedConns returns the conns in the order of their numbers.
func sortedConns(m map[lead.StreamID]*conn) []*conn {
	out := make([]*conn, 0, len(m))
	for _, c := range m {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *conn) int { return int(a.id) - int(b.id) })
	return out
}

func sessionID(text string) command.SessionID {
	id, err := command.ParseSessionID(text)
	if err != nil {
		return command.SessionID{}
	}
	return id
}
