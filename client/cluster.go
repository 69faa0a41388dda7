package client

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// checkClusterLocked has the endpoints asked for their cluster while the first claims are under
// way. When they are of two, the claims that wait fail.
func (c *Client) checkClusterLocked() {
	if !c.guard.isChecked() {
		c.askClustersLocked(func() error {
			err := c.guard.check(c.life)
			if errors.Is(err, lockstep.ErrUnavailable) { // not certain: the claims go on waiting
				return nil
			}
			return err
		})
	}
}

// askClustersLocked calls ask, which asks the endpoints, in a goroutine of its own, since it may
// take seconds. One is enough at a time.
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

// confirmCluster hands a grant out only when no endpoint has turned out to be of another cluster;
// else, and when ctx is done before that is known, it gives the lock back.
func (c *Client) confirmCluster(ctx context.Context, k *claim) {
	if k.err != nil || c.guard.isChecked() {
		return
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	k.err = c.guard.check(asking)
	if k.err == nil && asking.Err() != nil && !c.guard.isChecked() {
		k.err = lockstep.ErrClosed
		if ctx.Err() != nil {
			k.err = ended(ctx)
		}
	}
	if k.err == nil {
		return
	}
	c.do(func(now time.Duration) {
		k.lock.finishLocked(lockstep.ErrReleased)
		k.lock.sess.Release(now, k.seq)
	})
}

// heedCluster looks at whether a connection ended because its node is of another cluster. Meanwhile
// the search for the leader goes on.
func (c *Client) heedCluster(l *link) {
	if e, ok := errors.AsType[*ClusterError](l.err); ok {
		c.do(func(time.Duration) {
			c.askClustersLocked(func() error { return c.guard.reconsider(c.life, e) })
		})
	}
}

// failWaitingLocked ends the claims that wait with err. Locks that are held stay so: their cluster
// alone can renew them.
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

// loseSession ends the session of a cluster that is gone, and its connection first: a session that
// is begun again there would get its locks from the old cluster.
func (c *Client) loseSession(e *ClusterError) {
	c.do(func(now time.Duration) {
		if l := c.mu.link; l != nil {
			c.reconnectLocked("", withoutCode(e))
			c.unlinkLocked(now, l)
		}
		if c.mu.sess != nil {
			c.mu.sess.Lose(now, "cluster "+e.Want+" was replaced by "+e.Cluster)
		}
	})
}
