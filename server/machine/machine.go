package machine

import (
	"fmt"

	"github.com/google/btree"
)

// A Machine is the lock table of one group. Create one with New or Restore. Only one goroutine may
// use it at a time.
type Machine struct {
	index      uint64 // of the last applied entry
	hash       uint64
	nextToken  Token // 0 until the first floor
	limits     Limits
	grants     uint64   // number of the last grant
	events     uint64   // number of the last event
	endings    uint64   // number of the last session that ended
	members    []Member // by id; replaced, never modified
	birth      BirthID
	leaseClock Millis // at the last checkpoint; zero: there was none

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
	wall    WallMillis
	out     Output
	work    []*name // names whose queues settle has to try
	touched []*name // changed by the entry
	scratch []byte

	recent  [recentHashes]indexHash // for CheckHash, by index
	marks   marks
	capture *Capture
}

// A shard is one part of the session table.
type shard struct {
	live    table[SessionID, *session]
	leaving table[SessionID, *session] // ended, but with closing claims
	ended   table[SessionID, endedSession]
}

// recentHashes is how many entries back CheckHash can look. A proposal is applied a few entries
// after the one that it names.
const recentHashes = 1024

type indexHash struct{ index, hash uint64 }

// orderDegree is the degree of the B-tree of names. Its authors measured 32 as best for pointers.
const orderDegree = 32

// New returns the machine of a new group, with [DefaultLimits] but at the first feature level. It
// grants nothing before the first [SetTokenFloor].
func New() *Machine {
	m := &Machine{
		order: btree.NewG(orderDegree, func(a, b *name) bool { return a.text < b.text }),
		byID:  btree.NewG(orderDegree, func(a, b *session) bool { return compareIDs(a.id, b.id) < 0 }),
	}
	m.setLimits(DefaultLimits().At(firstLevel, Limits{}))
	return m
}

// Apply carries out the commands of the entry at index, which was proposed in term. Indexes must
// rise; entries without commands may be left out. Apply panics on a command or a feature level that
// this build doesn't know, and on a hash mismatch: continuing would fork the replicas.
func (m *Machine) Apply(index, term uint64, e *Entry) Output {
	if index <= m.index {
		panic(fmt.Sprintf("machine: entry %d applied after entry %d", index, m.index))
	}
	m.marks.pass(m.index, index-1, m.hash)
	m.index = index
	m.wall = e.Header.Wall
	clear(m.touched)
	m.touched = m.touched[:0]
	m.out = Output{
		Results: make([]Result, 0, len(e.Commands)),
		Events:  make([]Event, 0, len(e.Commands)), // most commands make one
	}
	for n, c := range e.Commands {
		m.at = Position{index, uint32(n)}
		m.out.Results = append(m.out.Results, m.command(term, c))
	}
	out := m.out
	m.out = Output{}
	m.hash = hashOutput(m.hash, index, &out)
	m.recent[index%recentHashes] = indexHash{index, m.hash}
	m.marks.pass(index-1, index, m.hash)
	return out
}

func (m *Machine) command(term uint64, c Command) Result {
	switch c := c.(type) {
	case OpenSession:
		return m.openSession(&c)
	case CloseSession:
		return m.closeSession(&c)
	case Acquire:
		return m.acquire(&c)
	case Cancel:
		return m.cancel(&c)
	case Release:
		return m.release(&c)
	case Expire:
		return m.expire(term, &c)
	case EndWait:
		return m.endWait(term, &c)
	case EndDelay:
		return m.endDelay(term, &c)
	case Revoke:
		return m.revoke(&c)
	case SetTokenFloor:
		return m.setTokenFloor(&c)
	case SetLimits:
		return m.changeLimits(&c)
	case EndRecovery:
		return m.endRecovery(term, &c)
	case CheckHash:
		return m.checkHash(&c)
	case SetMember:
		return m.setMember(&c)
	case RemoveMember:
		return m.removeMember(&c)
	case SetBirth:
		return m.setBirth(&c)
	case CheckpointLeases:
		return m.checkpointLeases(term, &c)
	case RenewLeases:
		return m.renewLeases(term, &c)
	default:
		panic(fmt.Sprintf("machine: unknown command %T at %d", c, m.index))
	}
}

// checkHash compares the command's hash with this machine's hash after the same entry. An entry
// that is too old, or before the snapshot that this machine was restored from, cannot be checked.
func (m *Machine) checkHash(c *CheckHash) Result {
	known := m.recent[c.Index%recentHashes]
	if known.index == c.Index && c.Index != 0 && known.hash != c.Hash {
		panic(fmt.Sprintf("machine: this replica has diverged: at entry %d its hash is %016x, the leader's %016x",
			c.Index, known.hash, c.Hash))
	}
	return Result{}
}

func (m *Machine) timer(kind TimerKind, id ClaimID, span Millis) {
	m.out.Timers = append(m.out.Timers, Timer{Kind: kind, Claim: id, Span: span})
}

// Index returns the index of the last applied entry, 0 before the first.
func (m *Machine) Index() uint64 { return m.index }

// Hash returns the running hash over all output so far. Machines with the same index and different
// hashes have diverged.
func (m *Machine) Hash() uint64 { return m.hash }
