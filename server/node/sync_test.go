package node

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// TestAGrantIsAnsweredOnlyAfterTheSync gives all nodes a disk with slow syncs. The crash tests
// cannot see an answer that comes before the sync, because syncing a disk in memory is faster than
// the network.
func TestAGrantIsAnsweredOnlyAfterTheSync(t *testing.T) {
	// Below the 400 ms after which a leader transfers leadership.
	const slow = 300 * time.Millisecond
	var armed atomic.Bool
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.FS, cfg.DataDir = slowSync(vfs.NewMem(), slow, &armed), cfg.Name
	})
	granted := 0
	for try := uint64(1); granted < 2 && try <= 20; try++ {
		armed.Store(false)
		cl := c.connect(c.leader())
		cl.open()
		armed.Store(true)
		from := time.Now()
		a := cl.call(lead.Acquire{Claim: command.Acquire{
			Session: cl.session, Seq: 1, Floor: 1, Spec: command.Spec{Names: []string{"job"}, HasWait: true},
		}})
		took := time.Since(from)
		if _, ok := a.(lead.Claimed); !ok {
			continue // on a busy machine the sync may take long enough to cost the leadership
		}
		if took < slow {
			t.Fatalf("answered after %v: a sync takes %v", took, slow)
		}
		granted++
	}
	if granted < 2 {
		t.Fatalf("%d answers: the test proves nothing", granted)
	}
}

// slowSync makes each sync of a write-ahead log take at least this long while armed.
func slowSync(fs vfs.FS, d time.Duration, armed *atomic.Bool) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if armed.Load() && strings.HasSuffix(op.Path, ".log") {
				time.Sleep(d)
			}
		}
		return nil
	}))
}
