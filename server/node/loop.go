package node

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/replica"
)

// publishEvery is how old the published status may get while the loop is busy. A change of leader
// is published at once.
const publishEvery = 50 * time.Millisecond

// loop owns the replica: it takes what has arrived, runs a turn, and carries out the result.
func (n *Node) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer n.looped.Store(true)
	n.recallMet()
	var l load
	var published lead.Time
	var view replica.View
	var leader uint64 // the last known one
	for {
		if len(l.rest) == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-n.inbox.wake:
			case <-timer.C:
			}
		} else if ctx.Err() != nil {
			return nil
		}
		asked := n.asked.Load() // before the inbox is emptied
		now, out, err := n.turn(&l)
		if err != nil {
			return err
		}
		if err := n.settleReplica(); err != nil {
			return err
		}
		if err := n.noteLevel(); err != nil {
			return err
		}
		n.carryOut(ctx, &out)
		if v := n.replica.View(); v != view || now-published >= lead.Time(publishEvery) || asked != n.answered.Load() {
			if v.Leader != 0 && v.Leader != leader {
				leader = v.Leader
				n.counts.leaders.Add(1)
			}
			published, view = now, v
			n.publish()
			n.publishMarks()
			n.answered.Store(asked)
		}
		timer.Reset(time.Duration(out.Wake - n.Now()))
	}
}

// turn gives the replica what has arrived and runs a turn. A broken invariant, such as a state that
// differs from the leader's, ends the node: what the replica holds can no longer be trusted.
func (n *Node) turn(l *load) (now lead.Time, out replica.Output, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = n.broke(broken)
		}
	}()
	n.step(l)
	now = n.Now()
	out = n.replica.Turn(now, command.WallMillis(time.Now().UnixMilli()))
	if out.Exit != "" && !(out.Stalled && n.store.Starved()) {
		err = errors.New("node: " + out.Exit)
	}
	return now, out, err
}

// broke returns the error for a turn that panicked. A log that is newer than this build is not a
// fault of either.
func (n *Node) broke(what any) error {
	if newer, ok := what.(error); ok && errors.Is(newer, command.ErrNewer) {
		n.log.Error("the log contains entries that this build does not support: upgrade this node", "err", newer)
		return fmt.Errorf("node: %w", newer)
	}
	n.log.Error("broken invariant", "what", what, "stack", string(debug.Stack()))
	return fmt.Errorf("node: broken invariant: %v: if it recurs at the next start, the log or the state in %s is damaged: %s", what, n.cfg.DataDir, wayOut)
}

// wayOut is the remedy for a node whose directory cannot be used any longer.
const wayOut = "keep the directory for analysis; while a majority of the others is serving, make this node a new member (lockstep member replace); " +
	"otherwise restore a backup on all nodes (lockstep snapshot restore), or see --force-new-cluster"

// step gives the replica everything that has arrived.
func (n *Node) step(l *load) {
	n.inbox.drain(l)
	for _, in := range l.inputs {
		n.replica.Step(in)
	}
	for _, r := range l.take() {
		n.replica.Step(replica.Asked{Request: r})
	}
	if len(l.rest) > 0 {
		n.replica.Step(replica.Backlog{Oldest: l.rest[0].Received})
	}
}

// carryOut does what a turn asks for, starting with what others wait for longest.
func (n *Node) carryOut(ctx context.Context, out *replica.Output) {
	if out.Forget != 0 { // also with ForgetNow: the purge may not end before a crash
		if err := n.store.RememberPurge(true); err != nil {
			n.fatal(fmt.Errorf("node: %w", err))
		}
	}
	n.disk.queue(out.Appends, out.CompactTo, out.Forget == replica.ForgetNow)
	n.send(ctx, out)
	if n.cfg.Replied != nil && len(out.Replies) > 0 {
		n.cfg.Replied(out.Replies, n.Now())
	}
	n.streams.deliver(out.Replies)
	if out.Snapshot != nil {
		n.snapshots.add(out.Snapshot)
	}
	if n.cfg.Events != nil && len(out.Events) > 0 {
		n.cfg.Events(out.Events)
	}
	if n.cfg.Applied != nil && len(out.Applied) > 0 {
		n.cfg.Applied(out.Applied)
	}
}
