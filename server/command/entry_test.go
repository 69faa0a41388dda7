package command

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// oneOfEach returns a command of each kind with all fields set.
func oneOfEach() []Command {
	id := SessionID{1, 15: 2}
	claims := []ClaimID{{id, 1}, {SessionID{3}, 1 << 60}}
	labels := []Label{{"host", "a"}, {"purpose", strings.Repeat("x", 200)}}
	return []Command{
		OpenSession{TTL: 10_000, Random: [8]byte{1, 7: 2}, Secret: Secret{15: 9}, ClientNumbered: true, Metadata: labels},
		OpenSession{TTL: 10_000, Random: [8]byte{2}, Secret: Secret{9}.Hash(), Hashed: true},
		CloseSession{id},
		Acquire{id, 7, "nonce", 5, 6, Spec{
			Names: []string{"t/a", "t/b"}, Mode: Permits, Weight: 1, Capacity: 3, HasWait: true, Wait: 500, LockDelay: 9, Metadata: labels,
		}},
		Cancel{id, 7, 5, 6},
		Release{id, 7, MaxToken},
		Expire{4, []SessionID{id, {}}},
		EndWait{4, claims},
		EndDelay{4, claims},
		Revoke{claims[0], 8, "ann", "maintenance", true},
		SetTokenFloor{MaxToken},
		SetLimits{DefaultLimits()},
		CheckHash{9, 1<<64 - 1},
		EndRecovery{4},
		SetMember{Member{ID: 7, Name: "a", Address: "a:1", Instance: [16]byte{3}, Founder: true}},
		RemoveMember{7},
		SetBirth{BirthID{15: 1}},
		CheckpointLeases{4, 1 << 40, 9, []SessionEnd{{id, 5}, {SessionID{}, 1 << 50}}, []DelayEnd{{claims[0], 7}}},
		RenewLeases{4, []SessionID{id, {}}},
	}
}

func TestAnEntryComesBackAsItWas(t *testing.T) {
	e := Entry{Header{1 << 63, 2, 1_800_000_000_000}, oneOfEach()}
	b := AppendEntry([]byte("before"), &e)
	if !bytes.HasPrefix(b, []byte("before")) {
		t.Fatal("AppendEntry did not append")
	}
	got, err := DecodeEntry(b[len("before"):])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestRandomAcquiresComeBackAsTheyWere(t *testing.T) {
	text := rapid.StringN(0, 600, 600)
	rapid.Check(t, func(t *rapid.T) {
		a := Acquire{Seq: rapid.Uint64().Draw(t, "seq"), Nonce: text.Draw(t, "nonce"), Floor: rapid.Uint64().Draw(t, "floor")}
		a.Spec.Names = rapid.SliceOfN(text, 1, 20).Draw(t, "names")
		a.Spec.Wait = Millis(rapid.Uint64().Draw(t, "wait"))
		b := AppendEntry(nil, &Entry{Commands: []Command{a, CloseSession{}}})
		got, err := DecodeEntry(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Command(a), got.Commands[0]); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestTheSizeOfACommandIsWhatItAddsToAnEntry(t *testing.T) {
	for _, c := range append(oneOfEach(), Acquire{Nonce: strings.Repeat("x", 5000)}) {
		empty := len(AppendEntry(nil, &Entry{}))
		if got, want := EncodedSize(c), len(AppendEntry(nil, &Entry{Commands: []Command{c}}))-empty; got != want {
			t.Errorf("%T has size %d, adds %d", c, got, want)
		}
	}
}

func TestAnEntryKeepsNoMemoryOfItsBytes(t *testing.T) {
	b := AppendEntry(nil, &Entry{Commands: oneOfEach()})
	e, err := DecodeEntry(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if diff := cmp.Diff(oneOfEach(), e.Commands); diff != "" {
		t.Fatal(diff)
	}
}

func TestADamagedEntryIsAnError(t *testing.T) {
	whole := AppendEntry(nil, &Entry{Commands: oneOfEach()})
	for n := range whole {
		if _, err := DecodeEntry(whole[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes decode", n, len(whole))
		}
	}
	entry := func(commands ...byte) []byte { return append([]byte{entryVersion, 0, 0, 0}, commands...) }
	for name, b := range map[string][]byte{
		"bytes behind the end":              append(bytes.Clone(whole), 0),
		"a newer format":                    append([]byte{entryVersion + 1}, whole[1:]...),
		"a command of an unknown kind":      entry(1, 1, 99),
		"a command of no kind":              entry(1, 0),
		"more commands than bytes":          entry(0xff, 0xff, 3, 1, 2),
		"a command with bytes too many":     entry(1, 18, kindCloseSession, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1),
		"a list longer than the command":    entry(1, 8, kindExpire, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
		"a number of more than 64 bits":     entry(1, 11, kindSetTokenFloor, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2),
		"a number that never ends":          entry(1, 12, kindSetTokenFloor, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
		"a limit of more than 32 bits":      entry(1, 6, kindSetLimits, 0xff, 0xff, 0xff, 0xff, 0x7f),
		"a length that wraps 64 bits round": entry(1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
	} {
		if e, err := DecodeEntry(b); err == nil {
			t.Errorf("%s: decodes to %+v", name, e)
		}
	}
}

func TestAppendEntryPanicsOnWhatItCannotEncode(t *testing.T) {
	mustPanic(t, "cannot encode", func() { AppendEntry(nil, &Entry{Commands: []Command{nil}}) })
	mustPanic(t, "the limit is", func() { AppendEntry(nil, &Entry{Commands: make([]Command, MaxCommands+1)}) })
}

// FuzzDecodeEntry looks for bytes that make the decoder panic or trust a length, and for entries
// that change when they are encoded again.
func FuzzDecodeEntry(f *testing.F) {
	f.Add(AppendEntry(nil, &Entry{Commands: oneOfEach()}))
	for _, c := range oneOfEach() {
		f.Add(AppendEntry(nil, &Entry{Commands: []Command{c}}))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEntry(b)
		if err != nil {
			return
		}
		again, err := DecodeEntry(AppendEntry(nil, &e))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, again); diff != "" {
			t.Fatal(diff)
		}
	})
}

func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), want) {
			t.Errorf("panic is %v, want one with %q", r, want)
		}
	}()
	f()
}
