package backend

import (
	"cmp"
	"crypto/tls"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdlock"
)

// reconnect finds a returning server sooner than the library's backoff of up to two minutes.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
	MinConnectTimeout: time.Second,
}

var etcd = kind{
	scheme:  "etcd",
	also:    []string{"etcds"},
	example: "etcd://127.0.0.1:2379,127.0.0.1:22379,127.0.0.1:32379",
	check: func(u URL) error {
		_, err := u.withPorts("2379")
		return cmp.Or(err, u.only(false))
	},
	open: func(u URL, o Options) (lockstep.Locker, error) {
		cli, err := u.EtcdClient(o)
		if err != nil {
			return nil, err
		}
		l, err := etcdlock.New(cli, etcdlock.Config{TTL: o.TTL, UnavailableAfter: o.Connect, Logger: o.Logger})
		if err != nil {
			cli.Close()
			return nil, err
		}
		return l, nil
	},
}

// EtcdClient returns a client for the etcd at the URL. It connects on first use, and the caller
// closes it. It uses the options Connect and Dial.
func (u URL) EtcdClient(o Options) (*clientv3.Client, error) {
	endpoints, err := u.withPorts("2379")
	if err != nil {
		return nil, err
	}
	password, _ := u.user.Password()
	// Without a keepalive, the client would stay with a server that is cut off.
	cfg := clientv3.Config{
		Endpoints: endpoints, Username: u.user.Username(), Password: password,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(reconnect)},
		Logger:      zap.NewNop(), // the commands return errors; printing them too would repeat them
		DialTimeout: o.Connect, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	}
	if u.scheme != u.kind.scheme {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if o.Dial != nil {
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithContextDialer(o.Dial))
	}
	return clientv3.New(cfg)
}
