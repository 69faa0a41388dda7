package machine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-dev/lockstep/server/command"
)

// snapshot returns a complete capture that nothing disturbs.
func snapshot(m *Machine) []byte {
	c := m.StartCapture()
	var b bytes.Buffer
	for {
		chunk, last := c.Next()
		b.Write(chunk)
		if last {
			return b.Bytes()
		}
	}
}

func restored(t *testing.T, m *Machine) *Machine {
	t.Helper()
	n, err := Restore(bytes.NewReader(snapshot(m)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// busyMachine has some of everything that a snapshot holds.
func busyMachine() *Machine {
	m, ids := opened(4)
	out := apply(m, command.OpenSession{TTL: 7, Secret: command.Secret{1}, Metadata: []command.Label{{Key: "host", Value: "a"}}})
	curl := out.Results[0].Session
	shared := func(id command.SessionID, seq uint64) command.Acquire {
		return command.Acquire{Session: id, Seq: seq, Spec: command.Spec{
			Names: []string{"r"}, Mode: command.Shared, LockDelay: 4, Metadata: []command.Label{{Key: "purpose", Value: "p"}},
		}}
	}
	apply(m,
		exclusive(ids[0], 1, "a", "b"), exclusive(ids[1], 1, "b"), exclusive(ids[2], 1, "b", "a"),
		shared(ids[0], 2), shared(ids[1], 2), shared(ids[2], 2), exclusive(ids[3], 1, "r"),
		command.Acquire{Session: ids[3], Seq: 2, Spec: command.Spec{Names: []string{"a"}, HasWait: true, Wait: 5}},
		command.Acquire{Session: ids[3], Seq: 3, Spec: command.Spec{Names: []string{"a"}, HasWait: true}},
		command.Acquire{Session: ids[3], Seq: 4, Spec: command.Spec{Names: []string{"a"}, Mode: command.Permits, Weight: 1, Capacity: 2}},
		command.Acquire{Session: curl, Nonce: "n", Spec: command.Spec{Names: []string{"s"}, Mode: command.Permits, Weight: 2, Capacity: 3}},
		command.Acquire{Session: curl, Spec: command.Spec{Names: []string{"q"}}},
		command.Acquire{Session: curl, Spec: command.Spec{Names: []string{"a"}, Mode: command.Shared}},
		command.Cancel{Session: curl, Seq: 2},
		command.Cancel{Session: ids[3], Seq: 9},
	)
	apply(m,
		command.Revoke{Claim: command.ClaimID{Session: ids[1], Seq: 2}, Token: 2, By: "ann", Reason: "maintenance", Now: false},
		command.Expire{Term: 1, Sessions: ids[2:3]},
		command.Revoke{Claim: command.ClaimID{Session: ids[0]}, By: "ann"},
		command.EndWait{Term: 1, Claims: []command.ClaimID{{Session: ids[3], Seq: 2}}},
		command.CloseSession{Session: apply(m, command.OpenSession{TTL: 1}).Results[0].Session},
	)
	return m
}

func TestARestoredMachineIsTheSame(t *testing.T) {
	m := busyMachine()
	if err := m.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
	want := snapshot(m)
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(want), "byte by byte": iotest.OneByteReader(bytes.NewReader(want)),
	} {
		n, err := Restore(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := snapshot(n); !bytes.Equal(got, want) {
			t.Errorf("%s: the snapshots differ", name)
		}
		if m.Index() != n.Index() || m.Hash() != n.Hash() || m.Limits() != n.Limits() || m.Counts() != n.Counts() {
			t.Errorf("%s: the numbers differ", name)
		}
		if diff := cmp.Diff(m.Timers(), n.Timers()); diff != "" {
			t.Errorf("%s: the timers differ: %s", name, diff)
		}
	}
}

func TestADamagedSnapshotGivesNoMachine(t *testing.T) {
	whole := snapshot(busyMachine())
	refuse := func(name string, b []byte) {
		if m, err := Restore(bytes.NewReader(b)); !errors.Is(err, ErrSnapshot) || m != nil {
			t.Fatalf("%s: error %v", name, err)
		}
	}
	for n := 0; n < len(whole); n += stride(n) {
		refuse(fmt.Sprintf("cut after %d of %d bytes", n, len(whole)), whole[:n])
	}
	for i := 0; i < len(whole); i += stride(i) {
		b := bytes.Clone(whole)
		b[i] ^= 1 << (i % 8)
		refuse(fmt.Sprintf("a bit of byte %d is flipped", i), b)
	}
	refuse("bytes behind the end", append(bytes.Clone(whole), 0))
	refuse("twice", append(bytes.Clone(whole), whole...))
	refuse("empty", nil)
	refuse("foreign", bytes.Repeat([]byte("a text of somebody else\n"), 1000))
}

// stride visits the header and the busy shards closely, and the empty ones sparsely.
func stride(at int) int {
	if at < 2000 {
		return 7
	}
	return 151
}

func TestPartsOfTwoSnapshotsDoNotMix(t *testing.T) {
	m := busyMachine()
	one := chunks(m)
	apply(m, command.SetTokenFloor{Floor: 1000})
	two := chunks(m)
	for i := 1; i < len(one); i += 9 {
		mixed := append(bytes.Join(one[:i], nil), bytes.Join(two[i:], nil)...)
		if _, err := Restore(bytes.NewReader(mixed)); !errors.Is(err, ErrSnapshot) {
			t.Fatalf("%d parts of the first and the rest of the second: %v", i, err)
		}
	}
	if _, err := Restore(bytes.NewReader(append(bytes.Join(one[:5], nil), bytes.Join(one[6:], nil)...))); err == nil {
		t.Fatal("a part is missing and nobody noticed")
	}
}

func chunks(m *Machine) [][]byte {
	c := m.StartCapture()
	for list := [][]byte(nil); ; {
		chunk, last := c.Next()
		if list = append(list, chunk); last {
			return list
		}
	}
}

func TestAnErrorOfTheReaderIsPassedOn(t *testing.T) {
	whole := snapshot(busyMachine())
	broken := errors.New("disk on fire")
	_, err := Restore(io.MultiReader(bytes.NewReader(whole[:500]), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
}

// TestAForgedSnapshotIsChecked modifies the snapshot and fixes the checksums: contradictions must
// be refused all the same.
func TestAForgedSnapshotIsChecked(t *testing.T) {
	for name, forge := range map[string]func(m *Machine, s *session){
		"a token that was never given":    func(m *Machine, s *session) { s.claims[0].token = m.nextToken },
		"a holder more than there can be": func(m *Machine, s *session) { s.claims[1].granted = true; s.claims[1].token = 1 },
		"a waiter that could go":          func(m *Machine, s *session) { s.claims = s.claims[1:] },
		"a claim that asks for nothing":   func(m *Machine, s *session) { s.claims[0].spec.Names = nil },
		"a live session that is over":     func(m *Machine, s *session) { s.ended = command.SessionExpired },
		"two claims of one number":        func(m *Machine, s *session) { s.claims[1].seq = 1 },
		"a closing claim without delay":   func(m *Machine, s *session) { s.closing = s.claims[:1]; s.claims = s.claims[1:] },
		"a live claim with a delay":       func(m *Machine, s *session) { s.claims[0].delay = 1 },
		"a semaphore and a lock in one name": func(m *Machine, s *session) {
			s.claims[1].spec.Mode, s.claims[1].spec.Weight, s.claims[1].spec.Capacity = command.Permits, 1, 1
		},
		"limits out of bounds":       func(m *Machine, s *session) { m.limits.Sessions = 0 },
		"more history than fits":     func(m *Machine, s *session) { m.limits.HistoryBytes = 64 << 10; fill(&m.history, 65<<10) },
		"a session in another shard": func(m *Machine, s *session) { s.id[15]++ },
	} {
		m, ids := opened(1)
		apply(m, exclusive(ids[0], 1, "a"), exclusive(ids[0], 2, "a"))
		forge(m, m.session(ids[0]))
		if _, err := Restore(bytes.NewReader(snapshot(m))); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// fill puts at least size bytes of events into the ring.
func fill(r *ring, size int) {
	c := &claim{session: &session{}, spec: command.Spec{Names: []string{"x"}}}
	r.limit = 10 * size
	for r.size < size {
		r.add(appendRecord(nil, 1, command.EventQueued, &name{text: "x", hash: hashText(0, "x")}, c, 0, "", ""), 1)
	}
}

func TestOneCaptureRunsAtATime(t *testing.T) {
	m, ids := opened(1)
	c := m.StartCapture()
	mustPanic(t, "running already", func() { m.StartCapture() })
	m.AbortCapture()
	mustPanic(t, "is over", func() { c.Next() })
	m.AbortCapture() // aborting nothing does no harm
	snapshot(m)
	apply(m, command.CloseSession{Session: ids[0]})
	snapshot(m)
}

// FuzzRestore looks for bytes that make Restore panic. The checksums are fixed up, since otherwise
// nearly every input would be refused because of them.
func FuzzRestore(f *testing.F) {
	for _, m := range []*Machine{New(), busyMachine()} {
		for i, chunk := range chunks(m) {
			if len(chunk) > 100 || i == 0 {
				f.Add(uint16(i), chunk[:len(chunk)-crc32.Size])
			}
		}
	}
	parts := chunks(busyMachine())
	f.Fuzz(func(t *testing.T, at uint16, part []byte) {
		var forged []byte
		sum := uint32(0)
		for i, chunk := range parts {
			chunk = chunk[:len(chunk)-crc32.Size]
			if i == int(at)%len(parts) {
				chunk = part
			}
			head := 0
			if i == 0 {
				head = min(len(snapshotMagic), len(chunk))
			}
			forged = append(forged, chunk...)
			sum = crc32.Update(sum, castagnoli, chunk[head:])
			forged = binary.BigEndian.AppendUint32(forged, sum)
		}
		m, err := Restore(bytes.NewReader(forged))
		if err != nil {
			return
		}
		exercise(t, m)
	})
}

// exercise uses all parts of a machine: whatever Restore accepts must work.
func exercise(t *testing.T, m *Machine) {
	if m.index > 1<<62 {
		return // no log is that long
	}
	snapshot(m)
	m.History("a", 10)
	var all command.Expire
	all.Term = 1
	for _, timer := range m.Timers() {
		all.Sessions = append(all.Sessions, timer.Claim.Session)
	}
	locks, _ := m.Locks("", "", 100)
	for _, l := range locks {
		for _, h := range l.Holders {
			apply(m, command.Release{Session: h.Claim.Session, Seq: h.Claim.Seq, Token: h.Token})
		}
	}
	apply(m, all)
	if err := m.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
}
