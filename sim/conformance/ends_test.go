package conformance

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client"
)

// A sharedSecret is what a handle has: it lets two processes use one session.
type sharedSecret struct {
	Session string `json:"session"`
	Secret  []byte `json:"secret"`
	Seq     uint64 `json:"seq"`
	Token   uint64 `json:"token"`
}

func secretOf(t *testing.T, h lockstep.Handle) (s sharedSecret) {
	t.Helper()
	_, body, _ := strings.Cut(string(h), ".")
	text, err := base64.RawURLEncoding.DecodeString(body)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestALockEndsWithTheCauseThatEndedIt: another process that has the session's secret ends a lock
// that is held here. Its context ends long before the lease would.
func TestALockEndsWithTheCauseThatEndedIt(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	conn, err := grpc.NewClient(c.endpoints()[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	locks := pb.NewLockServiceClient(conn)
	newClient := func() *client.Client {
		k, _ := c.client(t, 10*time.Second)
		return k
	}
	for name, end := range map[string]func(sharedSecret, lockstep.Handle) error{
		"released": func(k sharedSecret, _ lockstep.Handle) error {
			_, err := locks.Release(patient(t), &pb.ReleaseRequest{Session: k.Session, Secret: k.Secret, Seq: k.Seq, Token: k.Token})
			return err
		},
		"cancelled": func(k sharedSecret, _ lockstep.Handle) error {
			_, err := locks.Cancel(patient(t), &pb.CancelRequest{Session: k.Session, Secret: k.Secret, Seq: k.Seq})
			return err
		},
		"closed": func(k sharedSecret, _ lockstep.Handle) error {
			_, err := locks.CloseSession(patient(t), &pb.CloseSessionRequest{Session: k.Session, Secret: k.Secret})
			return err
		},
		"attached": func(_ sharedSecret, h lockstep.Handle) error {
			_, err := newClient().Attach(patient(t), h)
			return err
		},
	} {
		first := newClient()
		lock := must(first.Acquire(patient(t), "ends/"+name))
		handle := must(first.Detach(patient(t), lock))
		held := must(newClient().Attach(patient(t), handle))
		if err := held.Check(); err != nil {
			t.Fatal(err)
		}
		if err := end(secretOf(t, handle), handle); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		select {
		case <-held.Context().Done():
		case <-time.After(2 * time.Second): // the next keepalive is due after 3.3 s
			t.Errorf("%s by another: the holder believes on", name)
			continue
		}
		var loss *lockstep.LossError
		if cause := context.Cause(held.Context()); !errors.As(cause, &loss) || loss.Reason != lockstep.RecordMissing || !strings.Contains(loss.Detail, name) {
			t.Errorf("%s by another: the cause is %v", name, cause)
		}
	}
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
