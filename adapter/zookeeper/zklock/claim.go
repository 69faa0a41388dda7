package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A claim is one claim on its way through the queue. It belongs to one session permanently: a node
// that an earlier session left behind is never mistaken for its own. Take uses it first, then Drop;
// never both at once.
type claim struct {
	*locker.Claim
	session    *session
	dir        string
	made       chan struct{} // closed when the last request to create its node has ended; nil before the first
	node       string        // the path of its node, once known
	isDoubtful bool          // the answer to a create was lost: there may be a node, or an additional one
}

func newClaim(s *session, c *locker.Claim) *claim {
	return &claim{Claim: c, session: s, dir: dirOf(s.cfg.Root, c.Names[0])}
}

// take queues up and waits for the grant.
func (k *claim) take(ctx context.Context) (locker.Grant, error) {
	if err := k.enqueue(ctx); err != nil {
		return locker.Grant{}, err
	}
	for {
		grant, isGranted, err := k.advance(ctx)
		if err != nil || isGranted {
			return grant, err
		}
	}
}

// isNowhere reports whether the claim is certainly not in ZooKeeper.
func (k *claim) isNowhere() bool { return k.node == "" && !k.isDoubtful }

// maxCreates bounds the tries to create a node in a directory that keeps being removed first.
const maxCreates = 10

// enqueue creates the claim's node. If the answer is lost, it looks for the node before it creates
// another.
func (k *claim) enqueue(ctx context.Context) error {
	backoff := k.session.backoff()
	for tries := 0; ; {
		err := k.create(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, zk.ErrNoNode) && tries < maxCreates:
			tries++
			if err := k.session.createDir(ctx, k.dir); err != nil {
				return err
			}
		case isBroken(err):
			k.isDoubtful = true
			if err := k.session.pause(ctx, backoff.Next()); err != nil {
				return err
			}
			if isFound, err := k.recover(ctx); err != nil || isFound {
				return err
			}
		default:
			k.isDoubtful = k.isDoubtful || !errors.Is(err, zk.ErrNoNode) && !isRefused(err) // ctx or the session has ended
			return err
		}
	}
}

// create sends one request to create the node.
func (k *claim) create(ctx context.Context) error {
	made := make(chan struct{})
	k.made = made
	data := record{Owner: k.session.owner(), Metadata: k.Metadata}.encode()
	path, err := call(ctx, k.session, func(conn *zk.Conn) (string, error) {
		defer close(made)
		return conn.Create(join(k.dir, nodePrefix(k.Mode, k.ID)), data, zk.FlagEphemeralSequential, k.session.cfg.ACL)
	})
	if err == nil {
		k.node = path
	}
	return err
}

// recover looks for the node that a create with a lost answer may have left. The sync is ordered
// after that create: ZooKeeper refuses a request that arrives over an old connection once its
// session has moved to another server.
func (k *claim) recover(ctx context.Context) (isFound bool, err error) {
	if err := k.session.sync(ctx, k.dir); err != nil {
		return false, err
	}
	l, err := k.session.list(ctx, k.dir)
	if at := l.nodes.find(k.ID); err == nil && at >= 0 {
		k.node = join(k.dir, l.nodes[at].name)
		return true, nil
	}
	return false, err
}

// advance reads the queue, and waits for one change of it if the claim is not first.
func (k *claim) advance(ctx context.Context) (grant locker.Grant, isGranted bool, err error) {
	l, err := k.session.list(ctx, k.dir)
	if err != nil {
		return grant, false, err
	}
	at := l.nodes.find(k.ID)
	if at < 0 {
		return grant, false, missing("the claim's node was deleted")
	}
	if err := checkNumber(l.nodes[at]); err != nil {
		return grant, false, k.refuse(ctx, err)
	}
	blocker := l.nodes.blocker(at)
	switch {
	case blocker < 0 && k.Mode == lockstep.Shared:
		return k.grantShared(ctx, l.nodes[:at])
	case blocker < 0:
		grant, err = k.grant(ctx, 0)
		return grant, err == nil, err
	case k.Try():
		return grant, false, k.busy(ctx, l.nodes, at)
	default:
		return grant, false, k.await(ctx, l.nodes[blocker])
	}
}

// await waits until a node has changed or is gone.
func (k *claim) await(ctx context.Context, n node) error {
	c, err := k.session.watch(ctx, join(k.dir, n.name))
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil
	case err != nil:
		return err
	default:
		return k.session.awaitChange(ctx, c.changed)
	}
}

// busy withdraws a try and returns who was in the way.
func (k *claim) busy(ctx context.Context, q queue, at int) error {
	holders := q.holders()
	state, err := k.session.describe(ctx, k.dir, q[:min(holders, at, maxNamed)])
	busy := &lockstep.BusyError{Position: at - min(holders, at) + 1}
	if err == nil {
		busy.Holders = state.Holders
	}
	return k.refuse(ctx, busy)
}

// maxNamed bounds the holders that a BusyError names.
const maxNamed = 8

// refuse removes the claim from the queue before it fails with err.
func (k *claim) refuse(ctx context.Context, err error) error {
	if dropErr := k.drop(ctx, k.session); dropErr != nil && !errors.Is(dropErr, lockstep.ErrLost) {
		return fmt.Errorf("%w: %w", locker.ErrQueued, err)
	}
	k.node, k.isDoubtful = "", false
	return err
}

// grant makes a lock from a claim whose turn it is. token is the token of a shared claim, or zero
// for the node's own.
func (k *claim) grant(ctx context.Context, token lockstep.Token) (locker.Grant, error) {
	c, err := k.session.watch(ctx, k.node)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return locker.Grant{}, missing("the claim's node was deleted")
	case err != nil:
		return locker.Grant{}, err
	}
	if token == 0 {
		if token, err = tokenOf(c.stat.Czxid); err != nil {
			return locker.Grant{}, k.refuse(ctx, err)
		}
	}
	gone := make(chan error, 1)
	if err := k.session.keepWatch(k.node, c.changed, gone); err != nil {
		return locker.Grant{}, err
	}
	return locker.Grant{Token: token, Owner: k.session.owner(), Lease: k.session.lease, Gone: gone}, nil
}

// drop deletes the claim's node through a session, which may differ from its own.
func (k *claim) drop(ctx context.Context, s *session) error {
	if k.isDoubtful || k.node == "" {
		return k.dropByID(ctx, s)
	}
	_, err := call(ctx, s, func(conn *zk.Conn) (struct{}, error) { return struct{}{}, conn.Delete(k.node, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		return missing("the claim's node was not there")
	}
	return err
}

// dropByID deletes all nodes of the claim, once no more can appear.
func (k *claim) dropByID(ctx context.Context, s *session) error {
	if err := k.awaitMade(ctx); err != nil {
		return err
	}
	if err := s.sync(ctx, k.dir); err != nil {
		return err
	}
	l, err := s.list(ctx, k.dir)
	if err != nil {
		return err
	}
	result := error(missing("the claim has no node"))
	for _, n := range l.nodes {
		if n.id != k.ID {
			continue
		}
		_, err := call(ctx, s, func(conn *zk.Conn) (struct{}, error) { return struct{}{}, conn.Delete(join(k.dir, n.name), -1) })
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		result = nil
	}
	return result
}

// awaitMade waits until no request to create the node is in progress.
func (k *claim) awaitMade(ctx context.Context) error {
	if k.made == nil {
		return nil
	}
	select {
	case <-k.made:
		return nil
	case <-k.session.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
