package lead

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

const (
	ms      = Time(time.Millisecond)
	second  = Time(time.Second)
	wall0   = command.WallMillis(1_767_225_600_000) // 2026-01-01
	ttl     = command.Millis(10_000)
	grace   = Time(500 * time.Millisecond)
	latency = 3 * ms // of the log, and of a round
)

// A bed is a Lead with a group of which only its Lead is real: what is proposed is applied, and a
// round confirmed, after latency, unless log or quorum stand still.
type bed struct {
	*Lead
	t   testing.TB
	cfg Config

	now     Time
	wall    command.WallMillis
	machine *machine.Machine
	index   uint64
	term    uint64

	limits   command.Limits
	log      []due[[]byte] // proposed
	rounds   []due[uint64] // started
	logStuck bool
	cutOff   bool // no round is confirmed
	busy     bool // proposals are not accepted
	applied  []command.Entry
	floored  bool
	members  []command.Command
	lacks    bool
	asked    []ChangeMembers
	noLevel  *Refused
	replies  []Reply
	tag      uint64
	stream   StreamID
	secrets  uint64
	backlog  Time
}

// A due is something that happens at a time.
type due[T any] struct {
	at    Time
	value T
}

// newBed returns a bed that serves and has its token floor.
func newBed(t testing.TB, tune func(*Config, *command.Limits)) *bed {
	t.Helper()
	b := &bed{t: t, now: second, wall: wall0, machine: machine.New(), index: 1, limits: command.DefaultLimits()}
	b.cfg = Config{
		ID: 1, Machine: b.machine, Applied: 1, Grace: time.Duration(grace), MaxStep: 100 * time.Millisecond,
		RoundEvery: 30 * time.Millisecond, RoundIdle: 250 * time.Millisecond,
		BatchCommands: 512, BatchBytes: 256 << 10, BatchAge: time.Millisecond, InFlight: 1,
		QueueCommands: 8_192, SessionsPerAddress: 60_000, CheckEvery: 4_096,
		Rand: strings.NewReader("12345678"), Logger: slog.New(slog.DiscardHandler),
	}
	if tune != nil {
		tune(&b.cfg, &b.limits)
	}
	var err error
	if b.Lead, err = New(b.cfg, b); err != nil {
		t.Fatal(err)
	}
	b.begin()
	b.until(second, "token floor", func() bool { return b.machine.Counts().NextToken != 0 })
	b.run(50 * ms)
	return b
}

// begin starts a leadership in the next term and applies its first entry, which is empty.
func (b *bed) begin() {
	b.term++
	b.Start(b.term)
	b.index++
	b.Apply(b.index, b.term, nil, nil)
}

// change has the leadership lost and won again, with everything that was proposed applied before.
func (b *bed) change() {
	b.Depose()
	b.replies = append(b.replies, b.Replies()...)
	b.applyUntil(never)
	b.rounds = nil
	b.begin()
}

// The methods of Group.

func (b *bed) Propose(entry []byte) error {
	if b.busy {
		return errors.New("busy")
	}
	b.log = append(b.log, due[[]byte]{b.now + latency, entry})
	return nil
}

func (b *bed) StartRound(number uint64) {
	b.rounds = append(b.rounds, due[uint64]{b.now + latency, number})
}

func (b *bed) WantsFounding() bool { return !b.floored }

func (b *bed) Founding() []command.Command {
	if !b.WantsFounding() {
		return nil
	}
	b.floored = true
	return []command.Command{command.SetLimits{Limits: b.limits}, command.SetTokenFloor{Floor: 1_000}}
}

func (b *bed) WantsMembers() bool { return len(b.members) > 0 }

func (b *bed) Members() []command.Command {
	members := b.members
	b.members = nil
	return members
}

func (b *bed) LacksEntry() bool { return b.lacks }

func (b *bed) NoFloor() string {
	if b.floored {
		return ""
	}
	return "no floor"
}

func (b *bed) Floored() bool { return b.floored }

func (b *bed) ChangeMembers(q *Request, c ChangeMembers) {
	b.asked = append(b.asked, c)
	b.Reply(q, MembersChanged{c.Member})
}

func (b *bed) PlanLevel(l RaiseLevel) (command.Limits, *Refused) {
	if b.noLevel != nil {
		return command.Limits{}, b.noLevel
	}
	return b.machine.Limits().At(l.To, command.DefaultLimits()), nil
}

// tick lets one millisecond pass, with a turn in it.
func (b *bed) tick() {
	b.now += ms
	b.wall++
	b.Begin(b.now, b.wall)
	b.carryOut()
	b.Serve(b.backlog)
	b.carryOut()
	b.Finish()
	b.replies = append(b.replies, b.Replies()...)
}

func (b *bed) carryOut() {
	if !b.logStuck {
		b.applyUntil(b.now)
	}
	for !b.cutOff && len(b.rounds) > 0 && b.rounds[0].at <= b.now {
		b.Confirm(b.rounds[0].value, b.index)
		b.rounds = b.rounds[1:]
	}
}

func (b *bed) applyUntil(t Time) {
	for len(b.log) > 0 && b.log[0].at <= t {
		e, err := command.DecodeEntry(b.log[0].value)
		if err != nil {
			b.t.Fatal(err)
		}
		b.log = b.log[1:]
		b.index++
		out := b.machine.Apply(b.index, b.term, &e)
		b.applied = append(b.applied, e)
		b.Apply(b.index, b.term, &e, &out)
	}
}

func (b *bed) run(d Time) {
	b.t.Helper()
	for end := b.now + d; b.now < end; {
		b.tick()
	}
}

func (b *bed) until(limit Time, what string, done func() bool) {
	b.t.Helper()
	for end := b.now + limit; !done(); {
		if b.now >= end {
			b.t.Fatalf("after %v: no %s; %+v", time.Duration(limit), what, b.Stats())
		}
		b.tick()
	}
}

// take removes and returns the replies that pick selects.
func (b *bed) take(pick func(Reply) bool) (taken []Reply) {
	b.replies = slices.DeleteFunc(b.replies, func(r Reply) bool {
		if pick(r) {
			taken = append(taken, r)
			return true
		}
		return false
	})
	return taken
}

func (b *bed) newStream() StreamID { b.stream++; return b.stream }

// send gives the Lead a request and returns its tag.
func (b *bed) send(q Request) uint64 {
	b.tag++
	q.Tag, q.Received = b.tag, b.now
	b.Request(q)
	return b.tag
}

// call sends a request and waits for its answer.
func (b *bed) call(q Request) Answer {
	b.t.Helper()
	return b.answer(b.send(q))
}

func (b *bed) answer(tag uint64) (a Answer) {
	b.t.Helper()
	b.until(5*second, fmt.Sprintf("answer to %d", tag), func() bool {
		for _, r := range b.take(func(r Reply) bool { return r.Tag == tag }) {
			a = r.Answer
		}
		return a != nil
	})
	return a
}

// A client is a session that is bound to a stream.
type client struct {
	c      *bed
	stream StreamID
	id     command.SessionID
	secret command.Secret
	seq    uint64
	number uint64 // of the attachment
}

// open opens a session with its own stream.
func (b *bed) open(ttl command.Millis) *client {
	b.t.Helper()
	k := &client{c: b, stream: b.newStream(), number: 1}
	b.secrets++
	binary.BigEndian.PutUint64(k.secret[:], b.secrets)
	a := b.call(Request{Stream: k.stream, Body: Open{TTL: ttl, Secret: k.secret, Random: [8]byte(k.secret[:8]), ClientNumbered: true, Attach: true}})
	opened, ok := a.(Opened)
	if !ok {
		b.t.Fatalf("open answered %+v", a)
	}
	k.id = opened.Session
	return k
}

func (k *client) request(b Body) Request {
	return Request{Stream: k.stream, Session: k.id, Body: b}
}

func (k *client) call(b Body) Answer { k.c.t.Helper(); return k.c.call(k.request(b)) }

func (k *client) send(b Body) uint64 { return k.c.send(k.request(b)) }

// spec asks for one name, waiting as long as the session lives.
func spec(name string) command.Spec { return command.Spec{Names: []string{name}} }

func (k *client) acquireBody(s command.Spec) Acquire {
	k.seq++
	return Acquire{Claim: command.Acquire{Seq: k.seq, Spec: s}}
}

// acquire asks for a name and returns the state in the answer.
func (k *client) acquire(name string) command.ClaimStatus {
	k.c.t.Helper()
	a := k.call(k.acquireBody(spec(name)))
	claimed, ok := a.(Claimed)
	if !ok {
		k.c.t.Fatalf("acquire %s answered %+v", name, a)
	}
	return claimed.Claim
}

// attach binds the session to a new stream.
func (k *client) attach(seen uint64) (Answer, []command.ClaimStatus) {
	k.c.t.Helper()
	k.stream = k.c.newStream()
	k.number++
	tag := k.send(Attach{Secret: k.secret, Number: k.number, Seen: seen})
	a := k.c.answer(tag)
	return a, k.changes()
}

// changes returns the changes that were reported to the client on its stream.
func (k *client) changes() (claims []command.ClaimStatus) {
	for _, r := range k.c.take(func(r Reply) bool {
		_, ok := r.Answer.(Changed)
		return ok && r.Stream == k.stream && r.Session == k.id
	}) {
		claims = append(claims, r.Answer.(Changed).Claim)
	}
	return claims
}

// over returns the report of the session's end.
func (k *client) over() (e Ended, ok bool) {
	for _, r := range k.c.take(func(r Reply) bool {
		_, is := r.Answer.(Ended)
		return is && r.Stream == k.stream && r.Session == k.id
	}) {
		return r.Answer.(Ended), true
	}
	return e, false
}

// renew sends a keepalive.
func (k *client) renew() uint64 { return k.send(KeepAlive{Number: uint64(k.c.now)}) }

func lease(ttl command.Millis) Time { return Time(millis(ttl)) + grace }

// refusal returns the reason of a refusal, or 255.
func refusal(a Answer) Refusal {
	if r, ok := a.(Refused); ok {
		return r.Reason
	}
	return 255
}
