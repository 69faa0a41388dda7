package etcdlock

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A Locker hands out locks kept in etcd. It implements [lockstep.Locker], [lockstep.Inspector],
// [lockstep.Watcher] and [lockstep.Detacher], and is safe for concurrent use. It has one session,
// which begins with the first Acquire; a lost session is replaced by a new one.
type Locker struct {
	*locker.Locker
	backend *backend
}

var (
	_ lockstep.Locker    = (*Locker)(nil)
	_ lockstep.Inspector = (*Locker)(nil)
	_ lockstep.Watcher   = (*Locker)(nil)
)

// New makes a Locker that uses the client. The caller still owns the client: Close does not close
// it, and it must outlive the Locker. New sends nothing. Its errors are [lockstep.ErrInvalid] and
// name the field of cfg.
func New(cli *clientv3.Client, cfg Config) (*Locker, error) {
	cfg = cfg.withDefaults()
	if cli == nil {
		return nil, &lockstep.InvalidError{Field: "client", Rule: "must not be nil"}
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b := newBackend(cli, cfg)
	kit := locker.New(b, locker.Config{
		Capabilities:     capabilities(time.Duration(cfg.seconds()) * time.Second),
		UnavailableAfter: cfg.UnavailableAfter,
		Clock:            cfg.Clock,
		Logger:           cfg.Logger,
	})
	return &Locker{Locker: kit, backend: b}, nil
}

// Capabilities implements [lockstep.Locker]. The TTL is the requested one, in whole seconds, until
// the first session has begun, and then the one that etcd granted, which is longer if the Config
// asks for less than the cluster allows.
func (l *Locker) Capabilities() lockstep.Capabilities {
	caps := l.Locker.Capabilities()
	if granted := time.Duration(l.backend.ttl.Load()); granted != 0 {
		caps.TTL = granted
	}
	return caps
}

// grace is how long etcd may take to notice that a lease has run out: it checks every 500 ms.
const grace = time.Second

func capabilities(ttl time.Duration) lockstep.Capabilities {
	return lockstep.Capabilities{
		Backend: "etcd", TTL: ttl, Grace: grace,
		Fenced: true, FIFO: true, Shared: true, SurvivesFailover: true,
		Notes: []string{
			"Tokens are revisions of etcd. They go on rising until etcd is restored from a backup, which may bring revisions back that were given out: " +
				"restore with --bump-revision and --mark-compacted, and by more than was written since.",
			"After a change of etcd's leader every lease lasts its full TTL and an election timeout anew, so a dead holder blocks others for longer then.",
			"Use etcd 3.5.13, 3.4.31 or later: before, a leader that had been replaced while it stood still renewed and revoked leases (etcd#15247).",
			"A leader of etcd that stood still for longer than the TTL may, when it goes on, end leases that its successor renewed meanwhile (seen with 3.7.3). " +
				"The holder is told at once, yet the next may be granted before it has heard: let a guard check the token.",
			"Give the client keepalives: see the package documentation.",
			"Whoever may write below the prefix can take any lock away: limit it with the users and roles of etcd.",
		},
	}
}
