package etcdlock_test

import (
	"crypto/rand"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdlock"
	"github.com/lockstep-dev/lockstep/locktest"
)

func TestTheEtcdLockerKeepsTheContract(t *testing.T) {
	c := startCluster(t, 3)
	admin := connect(t, c.Endpoints())
	locktest.Run(t, locktest.Backend{
		New: func(t *testing.T) lockstep.Locker {
			l := sit(t, c, etcdlock.Config{TTL: suiteTTL})
			release(t, acquire(t, l, "warm/"+rand.Text())) // some checks are shorter than opening a session takes on a busy machine
			return l
		},
		Slack: 10 * time.Second, // a thousand hand-overs are three thousand requests to three servers
		Server: locktest.Server{
			Cut:  func(_ *testing.T, l lockstep.Locker) { l.(*seat).cut() },
			Heal: func(_ *testing.T, l lockstep.Locker) { l.(*seat).heal() },
			Restart: func(t *testing.T) {
				if err := c.Restart(); err != nil {
					t.Fatal(err)
				}
			},
			Delete: func(t *testing.T, name string) {
				if _, err := admin.Delete(t.Context(), root(name), clientv3.WithPrefix()); err != nil {
					t.Fatal(err)
				}
			},
		},
	})
}

// suiteTTL is long enough for a busy machine, where three servers and a thousand goroutines share
// two processors.
const suiteTTL = 6 * time.Second
