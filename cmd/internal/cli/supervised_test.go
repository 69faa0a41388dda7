package cli

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/cmd/internal/supervise"
)

func TestTheEndOfASupervisedCommandHasItsCodeAndItsText(t *testing.T) {
	revoked := &lockstep.LossError{Reason: lockstep.Revoked, By: "alice"}
	left := []supervise.Process{{PID: 17, Name: "sh"}}
	for _, c := range []struct {
		err  error
		code int
		want string
	}{
		{&supervise.LostError{Token: 7, Started: true, Err: supervise.ErrNotRenewed}, CodeLost, `lost "a\x1bb" (token 7): its lease could not be renewed in time; the command was stopped`},
		{&supervise.LostError{Token: 7, Err: revoked}, CodeLost, revoked.Error()},
		{&supervise.StuckError{After: 10 * time.Second, Left: left}, CodeLost,
			`the command was not stopped: 10s after the kill, process 17 ("sh") is still alive; the lock is not released, and ends with its lease`},
		{&supervise.StartError{Err: errors.New("no")}, CodeNotRunnable, "no"},
		{&supervise.SignalError{Signal: syscall.SIGTERM}, 128 + 15, ""},
		{&supervise.DueError{Reason: supervise.ParentGone}, 128 + 15, "the parent process is gone: giving up the wait"},
	} {
		got, ok := errors.AsType[exitError](ended(claimPlan{name: "a\x1bb"}, 0, c.err))
		text := ""
		if got.err != nil {
			text = got.err.Error()
		}
		if !ok || got.code != c.code || text != c.want {
			t.Errorf("%#v: code %d, %q, want %d, %q", c.err, got.code, text, c.code, c.want)
		}
	}
	if err := ended(claimPlan{}, 0, lockstep.ErrUnavailable); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("an error of the backend became %v", err)
	}
}

func TestEachEventHasASentence(t *testing.T) {
	plan := claimPlan{name: "x", target: Target{TTL: 10 * time.Second}}
	for _, c := range []struct {
		event supervise.Event
		want  string
	}{
		{supervise.Failed{Err: errors.New("no")}, "no"},
		{supervise.WatcherKilled{}, "the watcher was killed, and so was the command"},
		{supervise.Interrupted{}, "second interrupt: stopping the command"},
		{supervise.Due{Reason: supervise.InputClosed}, "standard input was closed: stopping the command"},
		{supervise.HeldTooLong{Limit: time.Minute}, "running for 1m0s, the limit of --max-hold: stopping the command"},
		{supervise.CommandStopped{Signal: "SIGTSTP", Group: 17}, "the command was stopped by SIGTSTP; x is still being renewed: continue it with kill -CONT 17, or end it with kill -TERM "},
		{supervise.Suspending{Remaining: 1234 * time.Millisecond}, "stopped: x is not being renewed, and will be lost in 1.2s unless continued"},
		{supervise.LeftRunning{}, "the command ended and left an invisible process running without the lock; --wait-all keeps the lock until they end"},
		{supervise.Unkillable{After: time.Second}, "1s after the kill, an invisible process of the command is still alive; x is renewed until it ends; interrupt to stop waiting and let the lease expire"},
		{supervise.ReleaseUnconfirmed{Err: errors.New("no")}, "the release was not confirmed, so the lock may stay held for up to 10s: no"},
		{supervise.CampaignFailed{Err: errors.New("no")}, "cannot campaign, retrying: no"},
		{supervise.TermLost{Err: &supervise.LostError{Token: 7, Started: true, Err: supervise.ErrNotRenewed}},
			"lost x (token 7): its lease could not be renewed in time; the command was stopped; campaigning again"},
	} {
		if got := sentence(plan, c.event).Error(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%T: %q, want %q", c.event, got, c.want)
		}
	}
}
