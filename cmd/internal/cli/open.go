package cli

import (
	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/cmd/internal/backend"
)

// openLocker opens a Locker on the target's backend.
func openLocker(t Target) (lockstep.Locker, error) {
	return backend.Open(t.Backend, backend.Options{TTL: t.TTL, Metadata: t.Metadata, Cluster: t.Cluster, Connect: t.Connect, Logger: t.Logger})
}

func (t Target) config() client.Config {
	return client.Config{Endpoints: t.Endpoints, Cluster: t.Cluster, UnavailableAfter: t.Connect, Logger: t.Logger}
}

// withAdmin calls f with a connection for reads and administration.
func (t *targetFlags) withAdmin(a *App, f func(*client.Admin) error) error {
	target, err := t.target()
	if err != nil {
		return err
	}
	if !target.Backend.Native() {
		return usageError("--backend: %s:// does not support this command: it needs the lock service itself", target.Backend.Scheme())
	}
	admin, err := client.NewAdmin(target.config())
	if err != nil {
		return err
	}
	defer admin.Close()
	if a.narrates(t.verbose) {
		defer a.sayOutages(t.verb, admin.Outage)()
	}
	return f(admin)
}
