package backend

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redislock"
	"github.com/lockstep-dev/lockstep/adapter/redis/redlock"
)

// silent keeps the library from printing to standard error what the commands return as errors.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

var redisKey = kind{
	scheme:  "redis",
	also:    []string{"rediss"},
	example: "redis://127.0.0.1:6379/0",
	check: func(u URL) error {
		_, err := u.redisOptions()
		return err
	},
	open: func(u URL, o Options) (lockstep.Locker, error) {
		rdb, err := u.RedisClient(o)
		if err != nil {
			return nil, err
		}
		l, err := redislock.New(rdb, redislock.Config{TTL: o.TTL, UnavailableAfter: o.Connect, Logger: o.Logger})
		if err != nil {
			return nil, err
		}
		return l, nil
	},
}

var redlockKind = kind{
	scheme:  "redlock",
	also:    []string{"redlocks"},
	example: "redlock://127.0.0.1:6379,127.0.0.1:6380,127.0.0.1:6381,127.0.0.1:6382,127.0.0.1:6383",
	check: func(u URL) error {
		_, err := u.redisOptions()
		return err
	},
	open: func(u URL, o Options) (lockstep.Locker, error) {
		options, err := u.redisOptions()
		if err != nil {
			return nil, err
		}
		var masters []*redis.Client
		for _, each := range options {
			masters = append(masters, redisClient(each, o))
		}
		l, err := redlock.New(masters, redlock.Config{TTL: o.TTL, UnavailableAfter: o.Connect, Logger: o.Logger})
		if err != nil {
			return nil, err
		}
		return l, nil
	},
}

// RedisClient returns a client for the one server at the URL. It connects on first use, and the
// caller closes it. It uses the option Dial.
func (u URL) RedisClient(o Options) (*redis.Client, error) {
	options, err := u.redisOptions()
	if err != nil {
		return nil, err
	}
	if len(options) > 1 {
		return nil, fmt.Errorf("redis:// takes one server: use redlock:// for several masters")
	}
	return redisClient(options[0], o), nil
}

// redisClient returns a client that connects on first use.
func redisClient(server *redis.Options, o Options) *redis.Client {
	redis.SetLogger(silent{})
	// An unavailable server is not redialed within one call: the Locker retries itself.
	server.DialerRetries = 1
	server.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if server.Dialer = o.dial(); server.Dialer != nil && server.TLSConfig != nil {
		server.Dialer = overTLS(server.Dialer, server.TLSConfig) // the library leaves TLS to a custom dialer
	}
	return redis.NewClient(server)
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

func overTLS(dial dialer, cfg *tls.Config) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		plain, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(plain, cfg)
		if err := conn.HandshakeContext(ctx); err != nil {
			plain.Close()
			return nil, err
		}
		return conn, nil
	}
}

// redisOptions returns the options for each host. A scheme with an additional s requires TLS, as in
// redis-cli.
func (u URL) redisOptions() (all []*redis.Options, err error) {
	if err := u.only(true); err != nil {
		return nil, err
	}
	database := 0
	if u.path != "" {
		if database, err = strconv.Atoi(u.path); err != nil || database < 0 {
			return nil, fmt.Errorf("the path must be the number of a database, not %s", lockstep.Excerpt(u.path))
		}
	}
	password, _ := u.user.Password()
	for _, host := range u.Hosts {
		address, err := withPort(host, "6379")
		if err != nil {
			return nil, err
		}
		o := &redis.Options{Addr: address, DB: database, Username: u.user.Username(), Password: password}
		if u.scheme != u.kind.scheme {
			name, _, _ := net.SplitHostPort(address) // withPort has checked it
			o.TLSConfig = &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12}
		}
		all = append(all, o)
	}
	return all, nil
}
