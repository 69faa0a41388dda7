package client

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// checkClusterLocked starts asking the endpoints for their cluster while the first claims are in
// progress. If they belong to two clusters, the waiting claims fail.
func (c *Client) checkClusterLocked() {
	if !c.guard.isChecked() {
		c.askClustersLocked(func() error {
			err := c.guard.check(c.life)
			if errors.Is(err, lockstep.ErrUnavailable) { // not certain: the claims keep waiting
				return nil
			}
			return err
		})
	}
}

// askClustersLocked calls ask, which queries the endpoints, in its own goroutine, since it may take
// seconds. Only one runs at a time.
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

// confirmCluster hands a grant out only if no endpoint turned out to belong to another cluster.
// Otherwise, or if ctx is done before that is known, it releases the lock.
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

// heedCluster checks whether a connection ended because its node belongs to another cluster.
// Meanwhile the search for the leader continues.
func (c *Client) heedCluster(l *link) {
	if e, ok := errors.AsType[*ClusterError](l.err); ok {
		c.do(func(time.Duration) {
			c.askClustersLocked(func() error { return c.guard.reconsider(c.life, e) })
		})
	}
}

// failWaitingLocked ends the waiting claims with err. Held locks stay held: only their own cluster
// can renew them.
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

// loseSession ends the session of a cluster that is gone, and its connection first: a new session
// on it would get its locks from the old cluster.
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
