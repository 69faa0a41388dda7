package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/server"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/node"
)

// forceFlags are the server flags for the survivor of a lost quorum.
type forceFlags struct {
	on, yes bool
	wait    span
}

func (f *forceFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.on, "force-new-cluster", false, "turn this node into a new single-node cluster, after most nodes were permanently lost")
	flags.BoolVar(&f.yes, "yes-acknowledged-grants-may-be-lost", false, "required with --force-new-cluster")
	f.wait = span{lockstep.MaxTTL, true}
	flags.Var(&f.wait, "force-wait", "with --force-new-cluster: hold off grants this long; must cover the longest TTL of any client (0 risks two holders)")
}

// run replaces the data directory if requested. The rest of the configuration has been checked.
func (f *forceFlags) run(config server.Config) error {
	if !f.on {
		return nil
	}
	address := config.InitialCluster[config.Name]
	if len(config.InitialCluster) != 1 || address == "" {
		return usageError("--force-new-cluster: --initial-cluster must name only this node, as %s=host:port: the others are added later", config.Name)
	}
	if !f.yes {
		return usageError("--force-new-cluster: grants that only the lost nodes knew are lost, all sessions end, and the other survivors " +
			"can only return as new members: confirm with --yes-acknowledged-grants-may-be-lost")
	}
	if f.wait.d > lockstep.MaxTTL || f.wait.d != 0 && f.wait.d < time.Second {
		return usageError("--force-wait: must be 0, or 1 s to %v", lockstep.MaxTTL)
	}
	return node.Force{
		Name: config.Name, DataDir: config.DataDir, Address: address, Wait: command.Millis(f.wait.d.Milliseconds()),
		Version: config.Version, Logger: config.Logger,
	}.Run()
}
