package machine

import (
	"fmt"

	"github.com/google/btree"
	"github.com/lockstep-dev/lockstep/server/command"
)

// A Machine is the lock table of one group. Create one with New or Restore. Only one goroutine may
// use it at a time.
type Machine struct {
	index      uint64 // of the last applied entry
	hash       uint64
	nextToken  command.Token // 0 until the first floor
	limits     command.Limits
	grants     uint64           // number of the last grant
	events     uint64           // number of the last event
	endings    uint64           // number of the last session that ended
	members    []command.Member // by id; replaced, never modified
	birth      command.BirthID
	leaseClock command.Millis // at the last checkpoint; zero: there was none

	shards   [shardCount]shard
	names    [nameTables]table[string, *name] // derived from the claims: not in a snapshot
	order    *btree.BTreeG[*name]             // the names in byte order
	byID     *btree.BTreeG[*session]          // the live sessions by id: derived, not in a snapshot
	lately   fifo                             // the ended sessions still remembered, oldest first
	history  ring
	abnormal ring
	recovery Recovery
	counts   Counts // the sizes only
	held     heldList

	// Working state of one call of Apply.
	at      Position
	wall    command.WallMillis
	out     command.Output
	work    []*name // names whose queues settle has to try
	touched []*name // changed by the entry
	scratch []byte

	recent  [recentHashes]indexHash // for CheckHash, by index
	marks   marks
	capture *Capture
}

// A Position is a place in the log of one group: entry Index, command N in it, from 0. Positions
// totally order the commands of a group.
type Position struct {
	Index uint64
	N     uint32
}

// A shard is one part of the session table.
type shard struct {
	live    table[command.SessionID, *session]
	leaving table[command.SessionID, *session] // ended, but with closing claims
	ended   table[command.SessionID, endedSession]
}

// recentHashes is how many entries back CheckHash can look. A proposal is applied a few entries
// after the one that it names.
const recentHashes = 1024

type indexHash struct{ index, hash uint64 }

// orderDegree is the degree of the B-tree of names. Its authors measured 32 as best for pointers.
const orderDegree = 32

// New returns the machine of a new group, with [command.DefaultLimits] but at the first feature
// level. It grants nothing before the first [command.SetTokenFloor].
func New() *Machine {
	m := &Machine{
		order: btree.NewG(orderDegree, func(a, b *name) bool { return a.text < b.text }),
		byID:  btree.NewG(orderDegree, func(a, b *session) bool { return compareIDs(a.id, b.id) < 0 }),
	}
	m.setLimits(command.DefaultLimits().At(command.FirstLevel, command.Limits{}))
	return m
}

// Apply carries out the commands of the entry at index, which was proposed in term. Indexes must
// rise; entries without commands may be left out. Apply panics on a command or a feature level that
// this build doesn't know, and on a hash mismatch: continuing would fork the replicas.
func (m *Machine) Apply(index, term uint64, e *command.Entry) command.Output {
	if index <= m.index {
		panic(fmt.Sprintf("machine: entry %d applied after entry %d", index, m.index))
	}
	m.marks.pass(m.index, index-1, m.hash)
	m.index = index
	m.wall = e.Header.Wall
	clear(m.touched)
	m.touched = m.touched[:0]
	m.out = command.Output{
		Results: make([]command.Result, 0, len(e.Commands)),
		Events:  make([]command.Event, 0, len(e.Commands)), // most commands make one
	}
	for n, c := range e.Commands {
		m.at = Position{index, uint32(n)}
		m.out.Results = append(m.out.Results, m.command(term, c))
	}
	out := m.out
	m.out = command.Output{}
	m.hash = hashOutput(m.hash, index, &out)
	m.recent[index%recentHashes] = indexHash{index, m.hash}
	m.marks.pass(index-1, index, m.hash)
	return out
}

func (m *Machine) command(term uint64, c command.Command) command.Result {
	switch c := c.(type) {
	case command.OpenSession:
		return m.openSession(&c)
	case command.CloseSession:
		return m.closeSession(&c)
	case command.Acquire:
		return m.acquire(&c)
	case command.Cancel:
		return m.cancel(&c)
	case command.Release:
		return m.release(&c)
	case command.Expire:
		return m.expire(term, &c)
	case command.EndWait:
		return m.endWait(term, &c)
	case command.EndDelay:
		return m.endDelay(term, &c)
	case command.Revoke:
		return m.revoke(&c)
	case command.SetTokenFloor:
		return m.setTokenFloor(&c)
	case command.SetLimits:
		return m.changeLimits(&c)
	case command.EndRecovery:
		return m.endRecovery(term, &c)
	case command.CheckHash:
		return m.checkHash(&c)
	case command.SetMember:
		return m.setMember(&c)
	case command.RemoveMember:
		return m.removeMember(&c)
	case command.SetBirth:
		return m.setBirth(&c)
	case command.CheckpointLeases:
		return m.checkpointLeases(term, &c)
	case command.RenewLeases:
		return m.renewLeases(term, &c)
	default:
		panic(fmt.Sprintf("machine: unknown command %T at %d", c, m.index))
	}
}

// checkHash compares the command's hash with this machine's hash after the same entry. An entry
// that is too old, or before the snapshot that this machine was restored from, cannot be checked.
func (m *Machine) checkHash(c *command.CheckHash) command.Result {
	known := m.recent[c.Index%recentHashes]
	if known.index == c.Index && c.Index != 0 && known.hash != c.Hash {
		panic(fmt.Sprintf("machine: this replica has diverged: at entry %d its hash is %016x, the leader's %016x",
			c.Index, known.hash, c.Hash))
	}
	return command.Result{}
}

func (m *Machine) timer(kind command.TimerKind, id command.ClaimID, span command.Millis) {
	m.out.Timers = append(m.out.Timers, command.Timer{Kind: kind, Claim: id, Span: span})
}

// Index returns the index of the last applied entry, 0 before the first.
func (m *Machine) Index() uint64 { return m.index }

// Hash returns the running hash over all output so far. Machines with the same index and different
// hashes have diverged.
func (m *Machine) Hash() uint64 { return m.hash }
