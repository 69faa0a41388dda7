package cli

import (
	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
)

// openLocker connects to the service.
func openLocker(t Target) (lockstep.Locker, error) {
	c, err := client.New(t.config())
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (t Target) config() client.Config {
	return client.Config{Endpoints: t.Endpoints, TTL: t.TTL, Metadata: t.Metadata, UnavailableAfter: t.Connect, Logger: t.Logger}
}

// withAdmin calls f with a connection for reading and for operators.
func (t *targetFlags) withAdmin(f func(*client.Admin) error) error {
	target, err := t.target()
	if err != nil {
		return err
	}
	admin, err := client.NewAdmin(target.config())
	if err != nil {
		return err
	}
	defer admin.Close()
	return f(admin)
}
