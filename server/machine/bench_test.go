package machine

import (
	"fmt"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
)

// benchSessions is how many sessions take locks in the benchmarks.
const benchSessions = 1000

func benchMachine(b *testing.B) (*Machine, []command.SessionID) {
	b.Helper()
	m := New()
	commands := []command.Command{command.SetTokenFloor{Floor: 1}}
	for range benchSessions {
		commands = append(commands, command.OpenSession{
			TTL: 10_000, ClientNumbered: true,
			Metadata: []command.Label{{Key: "host", Value: "worker-17.example.com"}, {Key: "pid", Value: "31337"}},
		})
	}
	out := m.Apply(1, 1, &command.Entry{Commands: commands})
	var ids []command.SessionID
	for _, r := range out.Results[1:] {
		ids = append(ids, r.Session)
	}
	return m, ids
}

// roundTrip does what a replica does with an entry that it proposed.
func roundTrip(b *testing.B, m *Machine, buf []byte, commands []command.Command) ([]byte, command.Output) {
	buf = command.AppendEntry(buf[:0], &command.Entry{Header: command.Header{Proposer: 1, Batch: 2, Wall: 1_800_000_000_000}, Commands: commands})
	e, err := command.DecodeEntry(buf)
	if err != nil {
		b.Fatal(err)
	}
	return buf, m.Apply(m.Index()+1, 1, &e)
}

// BenchmarkFree takes and releases locks that nobody else wants, 64 commands an entry: encoding,
// decoding and applying an Acquire and a Release are one operation.
func BenchmarkFree(b *testing.B) {
	m, ids := benchMachine(b)
	names := make([]string, benchSessions)
	for i := range names {
		names[i] = fmt.Sprintf("billing/orders/%d", i)
	}
	const batch = 64
	var buf []byte
	var out command.Output
	seq := uint64(0)
	b.ReportAllocs()
	for n := 0; n < b.N; n += batch {
		seq++
		commands := make([]command.Command, 0, batch)
		for i := range batch {
			commands = append(commands, command.Acquire{
				Session: ids[i], Seq: seq, Floor: seq,
				Spec: command.Spec{Names: names[i : i+1], Metadata: []command.Label{{Key: "purpose", Value: "nightly"}}},
			})
		}
		buf, out = roundTrip(b, m, buf, commands)
		commands = commands[:0]
		for i := range batch {
			commands = append(commands, command.Release{Session: ids[i], Seq: seq, Token: out.Results[i].Claim.Token})
		}
		buf, out = roundTrip(b, m, buf, commands)
		if r := out.Results[batch-1]; r.Claim.State != command.Released {
			b.Fatal(r)
		}
	}
}

// BenchmarkFreeAmongMany is BenchmarkFree while 200,000 other locks are held.
func BenchmarkFreeAmongMany(b *testing.B) {
	m, ids := benchMachine(b)
	held := uint64(0)
	for _, id := range ids {
		commands := make([]command.Command, 0, 200)
		for range 200 {
			held++
			commands = append(commands, command.Acquire{Session: id, Seq: held%200 + 1, Floor: 1, Spec: command.Spec{Names: []string{fmt.Sprintf("held/%d", held*7919)}}})
		}
		m.Apply(m.Index()+1, 1, &command.Entry{Commands: commands})
	}
	if m.Counts().Holders != 200_000 {
		b.Fatal(m.Counts())
	}
	var buf []byte
	seq := uint64(1000)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n++ {
		if n%benchSessions == 0 {
			seq++
		}
		id := ids[n%benchSessions]
		var out command.Output
		buf, out = roundTrip(b, m, buf, []command.Command{command.Acquire{
			Session: id, Seq: seq, Floor: seq - 5, Spec: command.Spec{Names: []string{fmt.Sprintf("held/%d-", n%benchSessions)}},
		}})
		buf, out = roundTrip(b, m, buf, []command.Command{command.Release{Session: id, Seq: seq, Token: out.Results[0].Claim.Token}})
		if out.Results[0].Code != command.OK {
			b.Fatal(out.Results[0])
		}
	}
}

// BenchmarkHot passes one lock around among 1,000 sessions: each operation is a Release, the grant
// to the next waiter and the Acquire that queues the old holder again.
func BenchmarkHot(b *testing.B) {
	m, ids := benchMachine(b)
	commands := make([]command.Command, 0, benchSessions)
	for _, id := range ids {
		commands = append(commands, command.Acquire{Session: id, Seq: 1, Floor: 1, Spec: command.Spec{Names: []string{"hot"}}})
	}
	out := m.Apply(m.Index()+1, 1, &command.Entry{Commands: commands})
	token := out.Results[0].Claim.Token
	var buf []byte
	seq := uint64(1)
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		id := ids[n%benchSessions]
		seq = uint64(n/benchSessions) + 1
		buf, out = roundTrip(b, m, buf, []command.Command{
			command.Release{Session: id, Seq: seq, Token: token},
			command.Acquire{Session: id, Seq: seq + 1, Floor: seq, Seen: seq, Spec: command.Spec{Names: []string{"hot"}}},
		})
		token = out.Changes[0].Claim.Token
	}
}

// BenchmarkQueue queues 16,384 waiters for one name and removes them all from the middle.
func BenchmarkQueue(b *testing.B) {
	for range b.N {
		m, ids := benchMachine(b)
		const waiters = 16_384
		var commands []command.Command
		for i := range waiters {
			commands = append(commands, command.Acquire{
				Session: ids[i%benchSessions], Seq: uint64(i/benchSessions) + 1, Floor: 1, Spec: command.Spec{Names: []string{"hot"}},
			})
		}
		m.Apply(m.Index()+1, 1, &command.Entry{Commands: commands})
		cancels := make([]command.Command, waiters)
		for i := range cancels {
			c := commands[(i*7919)%waiters].(command.Acquire)
			cancels[i] = command.Cancel{Session: c.Session, Seq: c.Seq, Floor: 1, Seen: 0}
		}
		m.Apply(m.Index()+1, 1, &command.Entry{Commands: cancels})
	}
}

// BenchmarkFirstChange measures how long a command waits for the part of the state that it is the
// first to change while a snapshot of 50,000 sessions with 200,000 locks is captured.
func BenchmarkFirstChange(b *testing.B) {
	m := fullMachine(b)
	c := m.StartCapture()
	b.ResetTimer()
	for n := range b.N {
		if n%shardCount == 0 {
			m.AbortCapture()
			c = m.StartCapture()
		}
		c.before(n % shardCount)
	}
}

// BenchmarkCapture captures 200,000 locks of 50,000 sessions.
func BenchmarkCapture(b *testing.B) {
	m := fullMachine(b)
	b.ResetTimer()
	for range b.N {
		b.SetBytes(int64(len(snapshot(m))))
	}
}

func fullMachine(b *testing.B) *Machine {
	m, _ := benchMachine(b)
	for range 50 {
		commands := make([]command.Command, 0, benchSessions)
		for range benchSessions {
			commands = append(commands, command.OpenSession{
				TTL: 10_000, ClientNumbered: true, Random: [8]byte{6: byte(m.Index()), 7: byte(len(commands))},
				Metadata: []command.Label{{Key: "host", Value: "worker-17"}},
			})
		}
		out := m.Apply(m.Index()+1, 1, &command.Entry{Commands: commands})
		commands = commands[:0]
		for i, r := range out.Results {
			for seq := range uint64(4) {
				commands = append(commands, command.Acquire{
					Session: r.Session, Seq: seq + 1, Floor: 1,
					Spec: command.Spec{Names: []string{fmt.Sprintf("orders/%d/%d/%d", m.Index(), i, seq)}},
				})
			}
		}
		m.Apply(m.Index()+1, 1, &command.Entry{Commands: commands})
	}
	return m
}

// BenchmarkHistory searches a full history for a name that is not in it: the worst case.
func BenchmarkHistory(b *testing.B) {
	m, ids := benchMachine(b)
	for seq := uint64(1); m.history.dropped == 0; seq++ {
		churn(m, ids[0], seq, 1, fmt.Sprintf("billing/orders/%d", seq%1000))
	}
	b.ResetTimer()
	for range b.N {
		if events, _ := m.History("never", 100); len(events) != 0 {
			b.Fatal(events)
		}
	}
}
