package replica

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// A script is a cluster that the commands in testdata drive:
//
//	cluster                   three replicas, all up; N in "leader N" and the like is one of 1, 2, 3
//	leader N                  leadership is handed over to N
//	open NAME ttl=10s         a client opens a session at the leader
//	acquire NAME LOCK [wait=] it asks for a lock; "unary": in a separate call that follows the claim
//	ask NAME LOCK             the same, but the script does not wait for the answer
//	release NAME LOCK         it releases its grant
//	pass DURATION [NAME...]   time passes, while these clients renew their leases every second
//	cut N... / heal           a network of its own for these replicas
//	crash N / start N         what N had not synced is lost
//	stick N / unstick N       N's disk stands still
//	pause N / wake N          N does not run
//	revoke LOCK               an operator revokes the grants of a lock
//	show LOCK                 holders and waiters, as the leader has them
//	told NAME                 what the client got unasked since the last time
//	roles                     who leads
type script struct {
	*cluster
	names  map[string]*client
	tokens map[command.Token]int // in order of appearance: tokens differ from run to run
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		reseed(3)
		s := &script{names: map[string]*client{}, tokens: map[command.Token]int{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "cluster" {
				s.cluster = newCluster(t, 3, nil)
				s.leader()
				return "ok\n"
			}
			s.t = t
			return s.do(d.Cmd, d.CmdArgs)
		})
	})
}

func (s *script) do(cmd string, args []datadriven.CmdArg) string {
	word := func(i int) string { return args[i].Key }
	switch cmd {
	case "leader":
		s.lead(number(word(0)))
	case "open":
		k := s.open(s.serving(), milliseconds(args[1].Vals[0]))
		s.names[word(0)] = k
	case "acquire":
		return s.acquire(args)
	case "ask":
		k := s.names[word(0)]
		k.send(k.acquireBody(spec(word(1))))
	case "release":
		return s.release(word(0), word(1))
	case "pass":
		s.pass(word(0), args[1:])
	case "cut":
		var ids []uint64
		for i := range args {
			ids = append(ids, number(word(i)))
		}
		s.isolate(ids...)
	case "heal":
		s.heal()
	case "revoke":
		a := s.call(s.serving(), lead.Request{Stream: s.newStream(), Body: lead.Revoke{Name: word(0), Command: command.Revoke{By: "ops", Reason: "test"}}})
		return fmt.Sprintf("%d revoked\n", a.(lead.RevokedClaims).Count)
	case "show":
		return s.show(word(0))
	case "told":
		return s.told(word(0))
	case "roles":
		return s.roles()
	default:
		return s.doHost(cmd, s.host(number(word(0))))
	}
	return "ok\n"
}

func (s *script) doHost(cmd string, h *host) string {
	switch cmd {
	case "crash":
		s.crash(h)
	case "start":
		s.start(h)
	case "stick":
		h.disk.stuck = true
	case "unstick":
		h.disk.stuck = false
	case "pause":
		h.paused = true
	case "wake":
		h.paused = false
	default:
		s.t.Fatalf("unknown command %s", cmd)
	}
	return "ok\n"
}

func number(word string) uint64 {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func milliseconds(word string) command.Millis {
	d, err := time.ParseDuration(word)
	if err != nil {
		panic(err)
	}
	return command.Millis(d.Milliseconds())
}

// serving returns the host that serves now.
func (s *script) serving() *host { return s.leader() }

func (s *script) acquire(args []datadriven.CmdArg) string {
	k := s.names[args[0].Key]
	want := command.Spec{Names: []string{args[1].Key}}
	unary := false
	for _, arg := range args[2:] {
		switch arg.Key {
		case "wait":
			want.HasWait, want.Wait = true, milliseconds(arg.Vals[0])
		case "unary":
			unary = true
		}
	}
	body := k.acquireBody(want)
	q := k.request(body)
	if unary {
		body.Follow = true
		q = lead.Request{Stream: s.newStream(), Session: k.id, Secret: &k.secret, Body: body}
	}
	switch a := s.call(k.host, q).(type) {
	case lead.Claimed:
		return s.state(a.Claim) + "\n"
	case lead.Refused:
		return fmt.Sprintf("refused: reason %d code %d\n", a.Reason, a.Code)
	default:
		return fmt.Sprintf("%+v\n", a)
	}
}

func (s *script) state(c command.ClaimStatus) string {
	switch c.State {
	case command.Queued:
		return fmt.Sprintf("queued as number %d", c.Position)
	case command.Granted:
		return "granted with " + s.token(c.Token)
	case command.WaitEnded:
		return "wait ended"
	case command.Revoked:
		return "revoked by " + c.By
	case command.Busy:
		return "busy"
	case command.Released:
		return "released"
	default:
		return fmt.Sprintf("state %d", c.State)
	}
}

func (s *script) token(t command.Token) string {
	if _, ok := s.tokens[t]; !ok {
		s.tokens[t] = len(s.tokens) + 1
	}
	return fmt.Sprintf("token %d", s.tokens[t])
}

func (s *script) release(name, lock string) string {
	k := s.names[name]
	for _, h := range s.serving().r.machine.Lock(lock, 100, 0).Holders {
		if h.Claim.Session == k.id {
			switch a := k.call(lead.Release{Claim: command.Release{Seq: h.Claim.Seq, Token: h.Token}}).(type) {
			case lead.Claimed:
				return s.state(a.Claim) + "\n"
			case lead.Refused:
				if a.Code == command.Lost {
					return "lost before; the end is confirmed\n"
				}
			}
		}
	}
	return "not held\n"
}

func (s *script) pass(duration string, names []datadriven.CmdArg) {
	for end := s.now + lead.Time(milliseconds(duration))*ms; s.now < end; {
		for _, arg := range names {
			s.names[arg.Key].renew()
		}
		s.run(min(second, end-s.now))
	}
}

func (s *script) name(id command.SessionID) string {
	for name, k := range s.names {
		if k.id == id {
			return name
		}
	}
	return "a stranger"
}

func (s *script) show(lock string) string {
	l := s.serving().r.machine.Lock(lock, 100, 100)
	var b strings.Builder
	for _, h := range l.Holders {
		closing := ""
		if h.Closing {
			closing = ", closing"
		}
		fmt.Fprintf(&b, "held by %s with %s%s\n", s.name(h.Claim.Session), s.token(h.Token), closing)
	}
	for _, h := range l.Waiters {
		fmt.Fprintf(&b, "%s waits\n", s.name(h.Claim.Session))
	}
	if b.Len() == 0 {
		return "free\n"
	}
	return b.String()
}

func (s *script) told(name string) string {
	k := s.names[name]
	var b strings.Builder
	for _, h := range s.hosts {
		for _, r := range h.take(func(r lead.Reply) bool { return r.Session == k.id && r.Tag == 0 }) {
			switch a := r.Answer.(type) {
			case lead.Changed:
				fmt.Fprintf(&b, "%d says: %s\n", h.id, s.state(a.Claim))
			case lead.Ended:
				fmt.Fprintf(&b, "%d says: session over, %s\n", h.id, map[command.Code]string{command.SessionExpired: "expired", command.SessionRevoked: "revoked"}[a.Code])
			case lead.Refused:
				fmt.Fprintf(&b, "%d says: not the leader any more\n", h.id)
			}
		}
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func (s *script) roles() string {
	var b strings.Builder
	for _, h := range s.hosts {
		role := "down"
		if h.r != nil {
			role = h.r.Status().Role.String()
			if h.r.Status().Serving {
				role += ", serving"
			}
		}
		if h.exit != "" {
			role += ", wants to end"
		}
		fmt.Fprintf(&b, "%d: %s\n", h.id, role)
	}
	return b.String()
}
