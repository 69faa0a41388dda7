package node

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// TestAPowerCutOfAllNodesLosesNothingAcknowledged repeatedly cuts the power of all nodes under
// load. Each time, a random part of what was not synced is lost.
func TestAPowerCutOfAllNodesLosesNothingAcknowledged(t *testing.T) {
	// The directories of all nodes are on one disk: it copies itself in one step, since the power
	// fails at one moment. With a disk each, a node that was copied last could have learned of a
	// commit that depends on what a node copied first wrote only later: it would come back with a
	// committed entry that no quorum has.
	disk := vfs.NewCrashableMem()
	c := newCluster(t, 3, func(cfg *Config) {
		smallSnapshots(cfg)
		cfg.FS, cfg.DataDir = disk, cfg.Name
	})
	rng := rand.New(rand.NewPCG(1, 2))
	granted := make(map[string]command.Token) // acknowledged
	var last command.Token
	for round := range 4 {
		leader := c.leader()
		cl := c.connect(leader)
		cl.open()
		stop := make(chan struct{})
		var worker sync.WaitGroup
		worker.Go(func() {
			for seq := uint64(1); ; seq++ {
				name := fmt.Sprintf("jobs/%d-%d", round, seq)
				token, ok := tryAcquire(cl, seq, name, stop)
				if !ok {
					return
				}
				if token <= last {
					t.Errorf("%s: token %d after %d", name, token, last)
				}
				granted[name], last = token, token
			}
		})
		cut := make(chan struct{})
		var noise sync.WaitGroup
		noise.Go(func() { makeNoise(c.connect(leader), cut) })
		time.Sleep(time.Duration(200+rng.IntN(300)) * time.Millisecond)
		close(stop) // what is acknowledged after the cut does not count
		worker.Wait()
		after := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng})
		close(cut)
		noise.Wait()
		names := slices.Collect(maps.Keys(c.nodes))
		for _, name := range names {
			c.stop(name)
		}
		disk = after
		for _, name := range names {
			c.start(name)
		}
		check := c.connect(c.leader())
		for name, token := range granted {
			read, ok := check.call(lead.ReadLock{Name: name, Holders: 100}).(lead.LockRead)
			if !ok || len(read.Lock.Holders) != 1 || read.Lock.Holders[0].Token != token {
				t.Fatalf("round %d: %s was granted with token %d, now: %+v", round, name, token, read.Lock)
			}
		}
		c.eventually("all have applied the same", func() error { return sameApplied(c) })
	}
	if len(granted) < 20 {
		t.Errorf("only %d grants: the test proves nothing", len(granted))
	}
}

// tryAcquire gives up when stop is closed before the answer arrives.
func tryAcquire(cl *client, seq uint64, name string, stop <-chan struct{}) (command.Token, bool) {
	cl.tag++
	req := lead.Request{Stream: cl.id, Tag: cl.tag, Received: cl.n.Now(), Session: cl.session, Body: lead.Acquire{
		Claim: command.Acquire{Session: cl.session, Seq: seq, Floor: seq, Spec: command.Spec{Names: []string{name}}},
	}}
	if err := cl.n.Submit([]lead.Request{req}); err != nil && !errors.Is(err, ErrStopped) {
		cl.t.Errorf("submit: %v", err)
	}
	for {
		select {
		case <-stop:
			return 0, false
		case r := <-cl.replies:
			claimed, ok := r.Answer.(lead.Claimed)
			if r.Tag != cl.tag || !ok || claimed.Claim.State != command.Granted {
				continue
			}
			return claimed.Claim.Token, true
		}
	}
}

// makeNoise keeps writes in flight until cut is closed. Nobody looks at the answers.
func makeNoise(cl *client, cut <-chan struct{}) {
	for {
		select {
		case <-cut:
			return
		case <-cl.replies:
		case <-time.After(time.Millisecond):
			_ = cl.n.Submit([]lead.Request{{Stream: cl.id, Received: cl.n.Now(), Body: lead.Open{TTL: 60_000}}})
		}
	}
}
