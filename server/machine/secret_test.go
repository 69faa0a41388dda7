package machine

import (
	"bytes"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
)

func atLevel(level uint32) command.SetLimits {
	return command.SetLimits{Limits: command.DefaultLimits().At(level, command.DefaultLimits())}
}

func owns(m *Machine, id command.SessionID, secret command.Secret) bool {
	s, ok := m.Session(id)
	return ok && s.Owned(&secret)
}

// markedSessions opens sessions whose secrets are easy to find.
func markedSessions(m *Machine) (ids []command.SessionID, secrets []command.Secret) {
	for i := range 300 { // in all shards
		secret := command.Secret([]byte("marked secret " + string([]byte{byte('0' + i%10), byte('a' + i/10)})))
		out := apply(m, command.OpenSession{TTL: 10, Random: [8]byte{byte(i), byte(i >> 8)}, Secret: secret, ClientNumbered: true})
		ids, secrets = append(ids, out.Results[0].Session), append(secrets, secret)
	}
	// One that has ended except for a closing claim.
	apply(m, command.SetTokenFloor{Floor: 1}, command.Acquire{Session: ids[0], Seq: 1, Floor: 1, Spec: command.Spec{Names: []string{"a"}, LockDelay: 9}})
	apply(m, command.Expire{Term: 1, Sessions: ids[:1]})
	return ids, secrets
}

func TestSecretsBecomeHashesWhenTheLevelRises(t *testing.T) {
	m := New()
	apply(m, atLevel(2))
	ids, secrets := markedSessions(m)
	before := snapshot(m)
	if !bytes.Contains(before, []byte("marked secret")) {
		t.Fatal("at level 2 the snapshot has no secrets: the test shows nothing")
	}
	during := m.StartCapture()
	var old []byte
	for range 3 {
		chunk, _ := during.Next()
		old = append(old, chunk...)
	}
	apply(m, atLevel(3), command.OpenSession{TTL: 10, Secret: secrets[1]}) // logged before the level rose
	for last := false; !last; {
		var chunk []byte
		chunk, last = during.Next()
		old = append(old, chunk...)
	}
	if !bytes.Equal(old, before) {
		t.Error("the snapshot under way is not that of the state before")
	}
	apply(m, command.OpenSession{TTL: 10, Random: [8]byte{7}, Secret: secrets[2].Hash(), Hashed: true})
	after := snapshot(m)
	if bytes.Contains(after, []byte("marked secret")) {
		t.Error("a secret is in the snapshot")
	}
	for _, m := range []*Machine{m, restored(t, m)} {
		for i, id := range ids[1:] {
			if !owns(m, id, secrets[i+1]) || owns(m, id, secrets[0]) || owns(m, id, secrets[i+1].Hash()) {
				t.Fatalf("session %d is not that of who has its secret", i+1)
			}
		}
		if s, ok := m.Leaving(ids[0]); !ok || !s.Owned(&secrets[0]) || s.Owned(&secrets[1]) {
			t.Error("a session that ends is not that of who has its secret")
		}
		n := 0
		for _, s := range m.Timers() {
			if owns(m, s.Claim.Session, secrets[1]) || owns(m, s.Claim.Session, secrets[2]) {
				n++
			}
		}
		if n != 4 {
			t.Errorf("%d sessions have the two secrets, want the two of before and the two of after", n)
		}
	}
	mustPanic(t, "feature level 2", func() {
		m := New()
		apply(m, atLevel(2), command.OpenSession{TTL: 1, Hashed: true})
	})
}

// A reader of an older backup must not be able to use what the level was raised for: the hash is
// not a secret.
func TestAHashDoesNotOpenASession(t *testing.T) {
	m := New()
	secret := command.Secret{1, 2, 3}
	id := apply(m, atLevel(3), command.OpenSession{TTL: 1, Secret: secret.Hash(), Hashed: true}).Results[1].Session
	if !owns(m, id, secret) || owns(m, id, secret.Hash()) || owns(m, id, command.Secret{}) {
		t.Error("a session at level 3 is owned by another secret than its own")
	}
}
