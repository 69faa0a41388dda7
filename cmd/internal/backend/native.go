package backend

import (
	"slices"

	"google.golang.org/grpc"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
)

var native = kind{
	scheme:  "lockstep",
	example: "lockstep://127.0.0.1:7400,127.0.0.1:7410,127.0.0.1:7420",
	check:   func(u URL) error { return u.only(false) },
	open: func(u URL, o Options) (lockstep.Locker, error) {
		cfg := client.Config{
			Endpoints: u.Hosts, Cluster: o.Cluster, TTL: o.TTL, Metadata: o.Metadata, UnavailableAfter: o.Connect, Logger: o.Logger,
		}
		if o.Dial != nil {
			cfg.DialOptions = []grpc.DialOption{grpc.WithContextDialer(o.Dial)}
		}
		c, err := client.New(cfg)
		if err != nil {
			return nil, err
		}
		return c, nil
	},
}

// Service returns the URL of the lock service with these nodes.
func Service(endpoints []string) URL {
	return URL{kind: &native, scheme: native.scheme, Hosts: slices.Clone(endpoints)}
}
