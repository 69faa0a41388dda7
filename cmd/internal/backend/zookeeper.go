package backend

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/zookeeper/zklock"
)

var zookeeper = kind{
	scheme:  "zk",
	example: "zk://127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183/lockstep",
	check: func(u URL) error {
		_, errHosts := u.withPorts("2181")
		_, errTick := u.tick()
		return cmp.Or(errHosts, u.only(true, "tick"), errTick)
	},
	open: func(u URL, o Options) (lockstep.Locker, error) {
		servers, err := u.withPorts("2181")
		if err != nil {
			return nil, err
		}
		tick, err := u.tick()
		if err != nil {
			return nil, err
		}
		root := ""
		if u.path != "" {
			root = "/" + u.path
		}
		password, _ := u.user.Password()
		l, err := zklock.New(zklock.Config{
			Servers: servers, TTL: o.TTL, Root: root, TickTime: tick, User: u.user.Username(), Password: password,
			Dial: o.dial(), UnavailableAfter: o.Connect, Logger: o.Logger,
		})
		if err != nil {
			return nil, err
		}
		return l, nil
	},
}

// tick returns the tick time of the servers, or zero if the URL does not set it.
func (u URL) tick() (time.Duration, error) {
	text := u.query.Get("tick")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("tick=%s: must be the tickTime of the servers, such as 2s", lockstep.Excerpt(text))
	}
	return d, nil
}
