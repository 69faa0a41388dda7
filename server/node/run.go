package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/storage"
	"github.com/lockstep-dev/lockstep/server/transport"
)

// Run opens the data directory and serves until ctx is done or the node must end. It returns nil
// after ctx is done, else the reason. It does not hand over leadership: call HandOver first. When
// the disk hangs, Run returns without waiting for it.
func (n *Node) Run(ctx context.Context) error {
	defer n.inbox.stop()
	defer n.cfg.Listener.Close()
	if err := n.refusing(func() error { return n.learnID(ctx) }); err != nil || ctx.Err() != nil {
		return err
	}
	store, err := n.openStore()
	if err != nil {
		return err
	}
	if n.transport, err = n.newTransport(); err != nil {
		return errors.Join(err, store.Close())
	}
	ctx, n.fatal = context.WithCancelCause(ctx)
	defer n.fatal(nil)
	defer context.AfterFunc(ctx, store.Hurry)()

	ended := make(chan error, 1)
	go func() { ended <- errors.Join(n.run(ctx), store.Close()) }()
	return n.await(ctx, ended, stopGrace)
}

const (
	// stopGrace is how long a node that must end waits for a hanging write of the log.
	stopGrace = 2 * time.Second
	// stopGraces is how many times in total it waits that long. Writing a snapshot file, or closing
	// the directory, may hang too, and nothing that was acknowledged depends on them.
	stopGraces = 10
)

// await waits for the goroutines, but not forever for a dead disk.
func (n *Node) await(ctx context.Context, ended <-chan error, grace time.Duration) error {
	select {
	case err := <-ended:
		return err
	case <-n.store.Failed(): // may come from a goroutine of Pebble that is now stopped
		n.fatal(n.store.Err())
	case <-ctx.Done():
	}
	hung := time.NewTimer(grace)
	defer hung.Stop()
	for left := stopGraces - 1; ; left-- {
		select {
		case err := <-ended:
			return err
		case <-hung.C:
			if left > 0 && n.busy.busy() < grace && n.store.Err() == nil {
				hung.Reset(grace) // something is slow to stop, but it isn't the disk
				continue
			}
			if err := cause(ctx); err != nil {
				return err
			}
			return errors.New("node: the disk does not respond")
		}
	}
}

// cause returns why ctx has ended, or nil for an orderly stop.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// run serves with an open directory. The first error is the fatal one, also for await.
func (n *Node) run(ctx context.Context) error {
	var g sync.WaitGroup
	serve := func(part func(context.Context) error) {
		g.Go(func() {
			if err := part(ctx); err != nil {
				n.fatal(err)
			}
		})
	}
	serve(n.transport.Run)
	serve(func(ctx context.Context) error {
		if err := n.start(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		serve(n.disk.run)
		serve(func(ctx context.Context) error { return n.disk.runPurges(ctx, n.log) })
		serve(n.snapshots.run)
		return n.loop(ctx)
	})
	g.Wait()
	n.sending.wg.Wait()
	return cause(ctx)
}

func (n *Node) newTransport() (*transport.Transport, error) {
	return transport.New(transport.Config{
		Self: n.identity(n.store.InstanceID()), Present: n.introduction,
		Peers: n.peers(), Listener: n.cfg.Listener, Dial: n.cfg.Dial, Secrets: n.cfg.Secrets,
		Handler: peerHandler{n}, Refused: &n.counts.refused, Audit: n.cfg.Audit, SnapshotBytesPerSecond: n.cfg.SnapshotBytesPerSecond, Logger: n.log,
	})
}

// refusing calls do while requests are answered NotLeader.
func (n *Node) refusing(do func() error) error {
	stop := make(chan struct{})
	refusing := make(chan struct{})
	go func() { defer close(refusing); n.refuse(stop) }()
	defer func() { close(stop); <-refusing }()
	return do()
}

// start makes the replica from what is on disk. Meanwhile requests are answered NotLeader.
func (n *Node) start(ctx context.Context) error {
	return n.refusing(func() error { return n.recover(ctx) })
}

func (n *Node) recover(ctx context.Context) error {
	rec, err := n.store.Recover(group)
	if err != nil {
		return err
	}
	if !rec.Found && n.cfg.Origin != "" {
		return fmt.Errorf("node: the restore into %s was interrupted: remove the directory and restore again", n.cfg.DataDir)
	}
	if !rec.Found {
		if err := n.bootstrap(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		if rec, err = n.store.Recover(group); err != nil {
			return err
		}
	}
	return n.makeReplica(ctx, &rec)
}

// bootstrap starts a log at the point where all others started theirs.
func (n *Node) bootstrap(ctx context.Context) error {
	if n.cfg.Join != "" {
		voters, err := n.joinVoters(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		return n.store.Bootstrap(group, &raftpb.ConfState{AutoLeave: new(false), Voters: voters})
	}
	birth, err := n.found(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	if err := n.settle(life{birth: birth}); err != nil {
		return err
	}
	return n.store.Bootstrap(group, voters(n.configured(), n.cfg.Members))
}

// refuse answers all requests with a refusal until stop is closed.
func (n *Node) refuse(stop <-chan struct{}) {
	var l load
	for {
		select {
		case <-stop:
			return
		case <-n.inbox.wake:
		}
		n.inbox.drain(&l)
		var replies []lead.Reply
		for _, r := range l.rest {
			if _, gone := r.Body.(lead.Gone); !gone {
				replies = append(replies, lead.Reply{
					Stream: r.Stream, Tag: r.Tag, Session: r.Session, Answer: lead.Refused{Reason: lead.NotLeader},
				})
			}
		}
		l.rest = nil
		n.streams.deliver(replies)
	}
}

// voters returns the members that a new cluster starts with.
func voters(cluster string, members map[string]string) *raftpb.ConfState {
	c := &raftpb.ConfState{AutoLeave: new(false)}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		c.Voters = append(c.Voters, ID(cluster, name))
	}
	return c
}

func (n *Node) makeReplica(ctx context.Context, rec *storage.Recovered) (err error) {
	m := machine.New()
	if !rec.Empty {
		if m, err = n.loadMachine(rec.Snapshot); err != nil {
			return err
		}
	}
	if err := n.settle(lifeOf(m)); err != nil {
		return err
	}
	if err := n.checkMembership(ctx, m); err != nil || ctx.Err() != nil {
		return err
	}
	forgetDue, err := n.store.PurgeDue()
	if err != nil {
		return err
	}
	n.log.Info("recovered", "snapshot", rec.Snapshot.GetIndex(), "entries", len(rec.Entries),
		"term", rec.HardState.GetTerm(), "commit", rec.HardState.GetCommit())
	cfg := replica.Config{
		ID: n.id.Load(), Group: group, Founders: n.founders(), Missing: n.missing(),
		Recovered: replica.Recovered{
			HardState: rec.HardState, Snapshot: rec.Snapshot, Entries: rec.Entries, Machine: m,
		},
		Configured: n.configured(), ForgetDue: forgetDue, TokenFloor: n.cfg.TokenFloor, Built: n.cfg.Built, Limits: n.cfg.Limits,
		SessionsPerAddress: n.cfg.SessionsPerAddress,
		Zone:               n.cfg.Zone, LeaderZone: n.cfg.LeaderZone,
		Stopwatch: func() time.Duration { return time.Duration(n.Now()) },
		Rand:      n.cfg.Random, Logger: n.log,
	}
	if n.cfg.tune != nil {
		n.cfg.tune(&cfg)
	}
	if n.replica, err = replica.New(cfg); err != nil {
		return fmt.Errorf("node: the log in %s: %w: %s", n.cfg.DataDir, err, wayOut)
	}
	n.disk = newDisk(n.store, &n.inbox, &n.busy, n.cfg.Synced)
	n.snapshots = newSnapshotWriter(n.store, &n.inbox, &n.counts, n.log)
	n.replica.Step(replica.Met{ID: n.id.Load(), Instance: n.store.InstanceID(), Level: command.FeatureLevel, Zone: n.cfg.Zone})
	n.publish()
	return nil
}
