package client

import (
	"errors"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// checkClusterLocked has the endpoints asked for their cluster while the first claims are under way. When they are of two, the claims
// that wait fail.
func (c *Client) checkClusterLocked() {
	if !c.guard.isChecked() {
		c.askClustersLocked(func() error { return c.guard.check(c.life) })
	}
}

// askClustersLocked calls ask, which asks the endpoints, in a goroutine of its own, since it may take seconds. One is enough at a time.
func (c *Client) askClustersLocked(ask func() error) {
	if c.mu.checking {
		return
	}
	c.mu.checking = true
	c.tasks.Go(func() {
		err := ask()
		c.do(func(now time.Duration) {
			c.mu.checking = false
			c.failWaitingLocked(now, err)
		})
	})
}

// confirmCluster hands a grant out only when it is known that the endpoints are of one cluster; else it gives the lock back.
func (c *Client) confirmCluster(k *claim) {
	if k.err != nil {
		return
	}
	if k.err = c.guard.check(c.life); k.err == nil {
		return
	}
	c.do(func(now time.Duration) {
		k.lock.finishLocked(lockstep.ErrReleased)
		k.lock.sess.Release(now, k.seq)
	})
}

// heedCluster looks at whether a connection ended because its node is of another cluster. Meanwhile the search for the leader goes on.
func (c *Client) heedCluster(l *link) {
	if e, ok := errors.AsType[*ClusterError](l.err); ok {
		c.do(func(time.Duration) {
			c.askClustersLocked(func() error { return c.guard.reconsider(c.life, e) })
		})
	}
}

// failWaitingLocked ends the claims that wait with err. Locks that are held stay so: their cluster alone can renew them.
func (c *Client) failWaitingLocked(now time.Duration, err error) {
	if err == nil || c.mu.sess == nil {
		return
	}
	for seq, k := range c.mu.claims {
		if k.lock == nil {
			c.mu.sess.Cancel(now, seq)
			c.dropLocked(k, err)
		}
	}
}

// loseSession ends the session of a cluster that is gone.
func (c *Client) loseSession(e *ClusterError) {
	c.do(func(now time.Duration) {
		if c.mu.sess != nil {
			c.mu.sess.Lose(now, "cluster "+e.Want+" was replaced by "+e.Cluster)
		}
	})
}
