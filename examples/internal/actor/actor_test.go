package actor_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/examples/internal/actor"
)

func TestABackendWhoseTokensNoGuardCanGoByIsRefused(t *testing.T) {
	t.Parallel()
	err := actor.Serve(t.Context(), actor.Config{Backend: "redis://127.0.0.1:1", Store: "file:///tmp", Name: "rent"}, strings.NewReader("acquire\n"), io.Discard)
	if !errors.Is(err, lockstep.ErrUnsupported) {
		t.Errorf("error %v, want unsupported", err)
	}
}

func TestAStepThatCannotBeDoneIsAnswered(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	cfg := actor.Config{Backend: "lockstep://127.0.0.1:1", Store: "file://" + t.TempDir(), Name: "rent", TTL: 3 * time.Second}
	if err := actor.Serve(t.Context(), cfg, strings.NewReader("look\n"), &out); err != nil {
		t.Fatal(err)
	}
	if want := `{"step":"look","error":"no lock is held yet"}` + "\n"; out.String() != want {
		t.Errorf("answer %s, want %s", out.String(), want)
	}
}

func TestAnActorThatEndsTellsWhy(t *testing.T) {
	t.Parallel()
	if os.Getenv("ACTOR_DIES") != "" {
		os.Stderr.WriteString("no room\n")
		os.Exit(3)
	}
	cmd := exec.Command(os.Args[0], "-test.run", t.Name()+"$")
	cmd.Env = append(os.Environ(), "ACTOR_DIES=1")
	a, err := actor.Start("A", cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := a.Await(t.Context()); err == nil || !strings.Contains(err.Error(), "A has ended: no room") {
		t.Errorf("error %v", err)
	}
}
