package zklock

import (
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A Locker hands out locks that ZooKeeper keeps. It implements [lockstep.Locker],
// [lockstep.Inspector] and [lockstep.Watcher], and is safe for concurrent use.
type Locker struct {
	*locker.Locker
	backend *backend
}

var (
	_ lockstep.Locker    = (*Locker)(nil)
	_ lockstep.Inspector = (*Locker)(nil)
	_ lockstep.Watcher   = (*Locker)(nil)
)

// New makes a Locker. It connects to nothing: the session is opened when it is needed first. A
// value of cfg that breaks a rule is [lockstep.ErrInvalid].
func New(cfg Config) (*Locker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	clock := lease.SystemClock()
	b := newBackend(cfg, clock)
	kit := locker.New(b, locker.Config{Capabilities: capabilities(newTiming(cfg.TTL, cfg.TickTime)), Clock: clock, Logger: cfg.Logger, UnavailableAfter: cfg.UnavailableAfter})
	return &Locker{kit, b}, nil
}

// Capabilities implements [lockstep.Locker]. Its TTL is what was asked for until the first session
// is open, and then what the servers granted.
func (l *Locker) Capabilities() lockstep.Capabilities {
	if granted := time.Duration(l.backend.granted.Load()); granted != 0 {
		return capabilities(newTiming(granted, l.backend.cfg.TickTime))
	}
	return l.Locker.Capabilities()
}
