package zklock

import (
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A Locker hands out locks kept in ZooKeeper. It implements [lockstep.Locker], [lockstep.Inspector]
// and [lockstep.Watcher], and is safe for concurrent use.
type Locker struct {
	*locker.Locker
	backend *backend
}

var (
	_ lockstep.Locker    = (*Locker)(nil)
	_ lockstep.Inspector = (*Locker)(nil)
	_ lockstep.Watcher   = (*Locker)(nil)
)

// New makes a Locker. It does not connect: the session is opened when it is first needed. A value
// of cfg that breaks a rule returns [lockstep.ErrInvalid].
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

// Capabilities implements [lockstep.Locker]. The TTL is the requested one until the first session
// is open, and then the one that the servers granted.
func (l *Locker) Capabilities() lockstep.Capabilities {
	if granted := time.Duration(l.backend.granted.Load()); granted != 0 {
		return capabilities(newTiming(granted, l.backend.cfg.TickTime))
	}
	return l.Locker.Capabilities()
}
