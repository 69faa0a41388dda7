package machine

import (
	"fmt"
	"testing"
)

// benchSessions is how many sessions take locks in the benchmarks.
const benchSessions = 1000

func benchMachine(b *testing.B) (*Machine, []SessionID) {
	b.Helper()
	m := New()
	commands := []Command{SetTokenFloor{1}}
	for range benchSessions {
		commands = append(commands, OpenSession{
			TTL: 10_000, ClientNumbered: true,
			Metadata: []Label{{"host", "worker-17.example.com"}, {"pid", "31337"}},
		})
	}
	out := m.Apply(1, 1, &Entry{Commands: commands})
	var ids []SessionID
	for _, r := range out.Results[1:] {
		ids = append(ids, r.Session)
	}
	return m, ids
}

// roundTrip does what a replica does with an entry that it proposed.
func roundTrip(b *testing.B, m *Machine, buf []byte, commands []Command) ([]byte, Output) {
	buf = AppendEntry(buf[:0], &Entry{Header: Header{1, 2, 1_800_000_000_000}, Commands: commands})
	e, err := DecodeEntry(buf)
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
	var out Output
	seq := uint64(0)
	b.ReportAllocs()
	for n := 0; n < b.N; n += batch {
		seq++
		commands := make([]Command, 0, batch)
		for i := range batch {
			commands = append(commands, Acquire{
				Session: ids[i], Seq: seq, Floor: seq,
				Spec: Spec{Names: names[i : i+1], Metadata: []Label{{"purpose", "nightly"}}},
			})
		}
		buf, out = roundTrip(b, m, buf, commands)
		commands = commands[:0]
		for i := range batch {
			commands = append(commands, Release{ids[i], seq, out.Results[i].Claim.Token})
		}
		buf, out = roundTrip(b, m, buf, commands)
		if r := out.Results[batch-1]; r.Claim.State != Released {
			b.Fatal(r)
		}
	}
}

// BenchmarkFreeAmongMany is BenchmarkFree while 200,000 other locks are held.
func BenchmarkFreeAmongMany(b *testing.B) {
	m, ids := benchMachine(b)
	held := uint64(0)
	for _, id := range ids {
		commands := make([]Command, 0, 200)
		for range 200 {
			held++
			commands = append(commands, Acquire{Session: id, Seq: held%200 + 1, Floor: 1, Spec: Spec{Names: []string{fmt.Sprintf("held/%d", held*7919)}}})
		}
		m.Apply(m.Index()+1, 1, &Entry{Commands: commands})
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
		var out Output
		buf, out = roundTrip(b, m, buf, []Command{Acquire{Session: id, Seq: seq, Floor: seq - 5, Spec: Spec{Names: []string{fmt.Sprintf("held/%d-", n%benchSessions)}}}})
		buf, out = roundTrip(b, m, buf, []Command{Release{id, seq, out.Results[0].Claim.Token}})
		if out.Results[0].Code != OK {
			b.Fatal(out.Results[0])
		}
	}
}

// BenchmarkHot passes one lock around among 1,000 sessions: each operation is a Release, the grant
// to the next waiter and the Acquire that queues the old holder again.
func BenchmarkHot(b *testing.B) {
	m, ids := benchMachine(b)
	commands := make([]Command, 0, benchSessions)
	for _, id := range ids {
		commands = append(commands, Acquire{Session: id, Seq: 1, Floor: 1, Spec: Spec{Names: []string{"hot"}}})
	}
	out := m.Apply(m.Index()+1, 1, &Entry{Commands: commands})
	token := out.Results[0].Claim.Token
	var buf []byte
	seq := uint64(1)
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		id := ids[n%benchSessions]
		seq = uint64(n/benchSessions) + 1
		buf, out = roundTrip(b, m, buf, []Command{
			Release{id, seq, token},
			Acquire{Session: id, Seq: seq + 1, Floor: seq, Seen: seq, Spec: Spec{Names: []string{"hot"}}},
		})
		token = out.Changes[0].Claim.Token
	}
}

// BenchmarkQueue queues 16,384 waiters for one name and removes them all from the middle.
func BenchmarkQueue(b *testing.B) {
	for range b.N {
		m, ids := benchMachine(b)
		const waiters = 16_384
		var commands []Command
		for i := range waiters {
			commands = append(commands, Acquire{Session: ids[i%benchSessions], Seq: uint64(i/benchSessions) + 1, Floor: 1, Spec: Spec{Names: []string{"hot"}}})
		}
		m.Apply(m.Index()+1, 1, &Entry{Commands: commands})
		cancels := make([]Command, waiters)
		for i := range cancels {
			c := commands[(i*7919)%waiters].(Acquire)
			cancels[i] = Cancel{c.Session, c.Seq, 1, 0}
		}
		m.Apply(m.Index()+1, 1, &Entry{Commands: cancels})
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
		commands := make([]Command, 0, benchSessions)
		for range benchSessions {
			commands = append(commands, OpenSession{TTL: 10_000, ClientNumbered: true, Random: [8]byte{6: byte(m.Index()), 7: byte(len(commands))}, Metadata: []Label{{"host", "worker-17"}}})
		}
		out := m.Apply(m.Index()+1, 1, &Entry{Commands: commands})
		commands = commands[:0]
		for i, r := range out.Results {
			for seq := range uint64(4) {
				commands = append(commands, Acquire{Session: r.Session, Seq: seq + 1, Floor: 1, Spec: Spec{Names: []string{fmt.Sprintf("orders/%d/%d/%d", m.Index(), i, seq)}}})
			}
		}
		m.Apply(m.Index()+1, 1, &Entry{Commands: commands})
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
