package s3fence_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/s3/s3fence"
	"github.com/lockstep-dev/lockstep/fence"
)

// steps lists the steps that change the manifest.
var steps = map[string]func(context.Context, *resource, fence.Grant) error{
	"enter":      func(ctx context.Context, r *resource, g fence.Grant) error { return r.Enter(ctx, g) },
	"write":      func(ctx context.Context, r *resource, g fence.Grant) error { return r.Write(ctx, g, []byte("new")) },
	"write once": func(ctx context.Context, r *resource, g fence.Grant) error { return r.WriteOnce(ctx, g, []byte("new")) },
	"delete":     func(ctx context.Context, r *resource, g fence.Grant) error { return r.Delete(ctx, g) },
}

// TestAStepWhoseReplyIsLostIsFoundAndMadeOnce loses the reply to the put of the manifest, and lets
// a proxy send it twice, so that the second response says that the condition does not hold.
func TestAStepWhoseReplyIsLostIsFoundAndMadeOnce(t *testing.T) {
	s := startServer(t)
	for name, step := range steps {
		for what, m := range map[string]mishap{"lost": loseReply, "twice": sendTwice} {
			r := open(t, s, name+"/"+what, s3fence.Config{})
			must(t, r.Write(t.Context(), grant(6), []byte("old")))
			r.line.sent()
			r.line.meet(m)
			if err := step(t.Context(), r, grant(7)); err != nil {
				t.Errorf("%s, %s: %v", name, what, err)
			}
			if sent := r.line.sent(); strings.Count(sent, "PUT manifest") != 1 || strings.Count(sent, "GET manifest") != 2 {
				t.Errorf("%s, %s sent %s, want one put of the manifest and a look after it", name, what, sent)
			}
			if err := r.Write(t.Context(), grant(6), nil); !errors.Is(err, fence.ErrStale) {
				t.Errorf("%s, %s: an older holder then: %v", name, what, err)
			}
		}
	}
}

// TestAWriteIsFoundBehindALaterEntry lets a later holder enter before the writer, whose reply was
// lost, checks again.
func TestAWriteIsFoundBehindALaterEntry(t *testing.T) {
	s := startServer(t)
	r, later := open(t, s, "x", s3fence.Config{}), open(t, s, "x", s3fence.Config{})
	must(t, r.Enter(t.Context(), grant(7)))
	r.line.meet(loseReply)
	r.line.afterwards = func() { must(t, later.Enter(t.Context(), grant(8))) }
	if err := r.WriteOnce(t.Context(), grant(7), []byte("seven")); err != nil {
		t.Errorf("the write: %v, want nil, as it took effect", err)
	}
	if data, err := later.Read(t.Context()); err != nil || string(data) != "seven" {
		t.Errorf("the later holder reads %q, %v", data, err)
	}
}

// TestAWriteThatCannotBeFoundIsUncertain lets a later holder write before the writer, whose reply
// was lost, checks again: there is no longer any evidence that the write took effect.
func TestAWriteThatCannotBeFoundIsUncertain(t *testing.T) {
	s := startServer(t)
	r, later := open(t, s, "x", s3fence.Config{}), open(t, s, "x", s3fence.Config{})
	r.line.meet(loseReply)
	r.line.afterwards = func() { must(t, later.Write(t.Context(), grant(8), []byte("eight"))) }
	err := r.Write(t.Context(), grant(7), []byte("seven"))
	if !errors.Is(err, lockstep.ErrUncertain) || fence.Refused(err) || !strings.Contains(err.Error(), "older") {
		t.Errorf("the write: %v, want ErrUncertain that tells of the later holder", err)
	}
	if err := r.Write(t.Context(), grant(7), []byte("seven")); !errors.Is(err, fence.ErrStale) {
		t.Errorf("its retry: %v, want ErrStale", err)
	}
	if data, err := later.Read(t.Context()); err != nil || string(data) != "eight" {
		t.Errorf("data %q, %v", data, err)
	}
}

func TestAStepThatIsNeverAnsweredIsUncertain(t *testing.T) {
	s := startServer(t)
	for name, step := range steps {
		r := open(t, s, name, s3fence.Config{})
		must(t, r.Write(t.Context(), grant(6), []byte("old")))
		r.line.sent()
		r.line.answers = func(request string) (int, error) {
			if request == "PUT manifest" {
				return 0, errLost
			}
			return 0, nil
		}
		err := step(t.Context(), r, grant(7))
		if sent := r.line.sent(); !errors.Is(err, lockstep.ErrUncertain) || strings.Count(sent, "PUT manifest") != 3 {
			t.Errorf("%s: %v, sent %s; want ErrUncertain after three puts", name, err, sent)
		}
	}
}

func TestTheEndOfAContextLeavesAPutUncertain(t *testing.T) {
	r := open(t, startServer(t), "x", s3fence.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	r.line.meet(loseReply)
	r.line.afterwards = cancel
	if err := r.Write(ctx, grant(7), []byte("x")); !errors.Is(err, lockstep.ErrUncertain) {
		t.Errorf("%v, want ErrUncertain", err)
	}
	if data, err := r.Read(t.Context()); err != nil || string(data) != "x" {
		t.Errorf("data %q, %v", data, err)
	}
}

func TestAnswersOfTheStore(t *testing.T) {
	s := startServer(t)
	for _, tt := range []struct {
		name   string
		status int
		times  int
		want   error
	}{
		{"a conflict is tried again", http.StatusConflict, 1, nil},
		{"an overload is tried again", http.StatusServiceUnavailable, 2, nil},
		{"a failed condition is decided anew", http.StatusPreconditionFailed, 5, nil},
		{"others that never stop are busy", http.StatusPreconditionFailed, 24, fence.ErrBusy},
		{"no permission", http.StatusForbidden, 1, lockstep.ErrUnavailable},
		{"no such condition", http.StatusNotImplemented, 1, lockstep.ErrUnsupported},
		{"no room", http.StatusInsufficientStorage, 3, lockstep.ErrUncertain},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := open(t, s, tt.name, s3fence.Config{})
			left := tt.times
			r.line.answers = func(request string) (int, error) {
				if request != "PUT manifest" || left == 0 {
					return 0, nil
				}
				left--
				return tt.status, nil
			}
			if err := r.Write(t.Context(), grant(7), []byte("x")); !errors.Is(err, tt.want) || left > 0 {
				t.Errorf("err %v, want %v; %d answers left", err, tt.want, left)
			}
			if data := r.objects(t); len(data) != 1 {
				t.Errorf("%d objects of data, want the one that a manifest may refer to", len(data))
			}
		})
	}
}
