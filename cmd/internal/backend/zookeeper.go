package backend

import (
	"cmp"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/zookeeper/zklock"
)

var zookeeper = kind{
	scheme:  "zk",
	example: "zk://127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183/lockstep",
	check: func(u URL) error {
		_, err := u.withPorts("2181")
		return cmp.Or(err, u.only(true))
	},
	open: func(u URL, o Options) (lockstep.Locker, error) {
		servers, err := u.withPorts("2181")
		if err != nil {
			return nil, err
		}
		root := ""
		if u.path != "" {
			root = "/" + u.path
		}
		password, _ := u.user.Password()
		l, err := zklock.New(zklock.Config{
			Servers: servers, TTL: o.TTL, Root: root, User: u.user.Username(), Password: password, UnavailableAfter: o.Connect, Logger: o.Logger,
		})
		if err != nil {
			return nil, err
		}
		return l, nil
	},
}
