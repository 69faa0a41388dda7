package election

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
)

var (
	leaseEnded = &lockstep.LossError{Reason: lockstep.LeaseEnded}
	revoked    = &lockstep.LossError{Reason: lockstep.Revoked}
	expired    = &lockstep.LossError{Reason: lockstep.SessionExpired}
)

func TestHealthOfATerm(t *testing.T) {
	cfg := Config{RenewDeadline: 6 * time.Second, Drain: 3 * time.Second}
	const ttl = 9 * time.Second // renewals are due every 3 s, and late after 4.5 s
	for name, c := range map[string]struct {
		v       vitals
		healthy bool
	}{
		"renewals are in time":                     {vitals{unrenewed: 4500 * time.Millisecond}, true},
		"a renewal is late":                        {vitals{unrenewed: 4501 * time.Millisecond}, false},
		"stepped down unrenewed":                   {vitals{unrenewed: 6 * time.Second, cause: ErrNotRenewed}, false},
		"the lease ended while it was frozen":      {vitals{unrenewed: 8 * time.Second, cause: leaseEnded}, false},
		"revoked, and the body drains":             {vitals{unrenewed: 8 * time.Second, cause: revoked, overFor: 3 * time.Second}, true},
		"revoked, and the body overran its drain":  {vitals{unrenewed: 8 * time.Second, cause: revoked, overFor: 3*time.Second + 1}, false},
		"resigned, and the body overran its drain": {vitals{cause: resignation{}, overFor: time.Minute}, false},
		"stopped, and the body drains":             {vitals{cause: context.Canceled, overFor: time.Second}, true},
	} {
		err := c.v.health(ttl, cfg)
		if (err == nil) != c.healthy {
			t.Errorf("%s: health %v, want healthy: %v", name, err, c.healthy)
		}
		if err != nil && c.v.cause != nil && !errors.Is(err, c.v.cause) {
			t.Errorf("%s: health %v does not tell the cause", name, err)
		}
	}
}

func TestPauseBetweenTerms(t *testing.T) {
	const period = 2 * time.Second
	for name, c := range map[string]struct {
		fifo   bool
		cause  error
		lasted time.Duration
		want   time.Duration
	}{
		"none after a long term":                  {true, expired, time.Minute, 0},
		"the rest of the period after a short":    {true, expired, period / 4, period * 3 / 4},
		"none for who gives up, with a queue":     {true, resignation{}, time.Minute, 0},
		"a period for who resigns without":        {false, resignation{}, time.Minute, period},
		"a period for who is revoked without":     {false, revoked, time.Minute, period},
		"none for who lost its lease without":     {false, leaseEnded, time.Minute, 0},
		"the cooldown":                            {true, resignation{time.Hour}, time.Minute, time.Hour},
		"the period when it exceeds the cooldown": {false, resignation{time.Second}, time.Minute, period},
	} {
		if got := (policy{retryPeriod: period, fifo: c.fifo}).pause(c.cause, c.lasted); got != c.want {
			t.Errorf("%s: pause %v, want %v", name, got, c.want)
		}
	}
	cooling := policy{retryPeriod: period, cooldown: 2 * period, fifo: true}
	for cause, want := range map[error]time.Duration{expired: 2 * period, resignation{time.Second}: 2 * period, resignation{time.Hour}: time.Hour} {
		if got := cooling.pause(cause, time.Minute); got != want {
			t.Errorf("pause %v after %v with a cooldown, want %v", got, cause, want)
		}
	}
}
