package sim

import (
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/replica"
)

// An operator reads locks and revokes them, by unary calls to the node that it believes to be the
// leader.
type operator struct {
	w       *world
	machine int
	rnd     random
}

// callTimeout bounds the wait for the answer of one unary call.
const callTimeout = 3 * time.Second

// call sends one unary request to the node; answer is called with each reply until it reports the
// last one. The call ends after patience at the latest.
func (o *operator) call(n *node, r lead.Request, patience time.Duration, answer func(lead.Answer) (last bool)) {
	w := o.w
	w.streams++
	id, life := w.streams, n.life
	w.after(w.net.delay(), func() {
		if !n.up() || n.life != life || !w.net.open(o.machine, n.index) {
			return
		}
		end := func() {
			if n.life == life && n.up() && n.unary[id] != nil {
				delete(n.unary, id)
				n.request(o.machine, lead.Request{Stream: id, Body: lead.Gone{}})
			}
		}
		at := w.now
		n.unary[id] = func(r lead.Reply) {
			at = max(at, w.now+w.net.delay())
			w.at(at, func() {
				if !w.failed() && w.net.open(n.index, o.machine) && answer(r.Answer) {
					end()
				}
			})
		}
		r.Stream, r.From = id, lead.Origin{Connection: uint64(id), Address: "operator"}
		n.request(o.machine, r)
		w.after(patience, end)
	})
}

// target returns the node that the operator asks: usually one that believes it is the leader.
func (o *operator) target() *node {
	if o.rnd.chance(0.8) {
		for _, i := range o.rnd.Perm(len(o.w.nodes)) {
			if n := o.w.nodes[i]; n.up() && n.rep.Status().Role == replica.Leader {
				return n
			}
		}
	}
	return o.w.nodes[o.rnd.IntN(len(o.w.nodes))]
}

// look reads a lock and checks the answer against the log.
func (o *operator) look() {
	w := o.w
	name := w.lockName(o.rnd.IntN(w.plan.names))
	begin := w.book.Last()
	o.call(o.target(), lead.Request{Body: lead.ReadLock{Name: name, Holders: 1_000, Waiters: 10}}, callTimeout, func(a lead.Answer) bool {
		read, ok := a.(lead.LockRead)
		if !ok {
			w.count(readRefused)
			return true
		}
		w.count(readAnswered)
		tokens := []command.Token{}
		for _, h := range read.Lock.Holders {
			tokens = append(tokens, h.Token)
		}
		w.check(w.book.Read(name, begin, tokens))
		return true
	})
}

// revoke takes a lock, or sometimes a whole session, away from its holder.
func (o *operator) revoke() {
	w := o.w
	name := w.lockName(o.rnd.IntN(w.plan.names))
	claims, tokens := w.book.Holders(name)
	if len(claims) == 0 {
		return
	}
	i := o.rnd.IntN(len(claims))
	r := lead.Revoke{Command: command.Revoke{
		Claim: claims[i], Token: tokens[i], By: "operator", Reason: "simulated", Now: o.rnd.chance(w.plan.revokeNow),
	}}
	switch {
	case o.rnd.chance(0.2):
		r.Command.Claim.Seq, r.Command.Token = 0, 0 // the whole session
	case o.rnd.chance(0.2):
		r.Command.Claim, r.Command.Token = command.ClaimID{}, 0
		r.Name, r.Last = name, tokens[i]
	}
	w.note("operator revokes %q from %v, now %v", name, claims[i], r.Command.Now)
	w.tearBefore(claims[i].Session)
	o.call(o.target(), lead.Request{Body: r}, callTimeout, func(a lead.Answer) bool {
		if _, ok := a.(lead.RevokedClaims); ok {
			w.count(revokeAnswered)
		}
		return true
	})
}

// tearBefore sometimes breaks the stream of the session that is about to lose something, so that
// the client learns of it only when it comes back.
func (w *world) tearBefore(id command.SessionID) {
	for _, c := range w.clients {
		if c.id == id && c.conn != nil && w.operator.rnd.chance(w.plan.revokeTorn) {
			w.count(revokedUnheard)
			k := c.conn
			if w.operator.rnd.chance(0.2) {
				k.tear()
			} else {
				k.deaf = true
			}
		}
	}
}
