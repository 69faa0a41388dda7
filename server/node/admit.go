package node

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/storage"
	"github.com/lockstep-dev/lockstep/server/transport"
)

// The door decides whom this node talks to. A refusal ends neither side: a refused node waits, says
// what to do, and gives up only when a majority of the members says that it was removed or
// replaced. So a single node that is out of step never stops those that are not.

// A door is what a node knows about the peers that connect.
type door struct {
	sync.Mutex // held for each handshake's decision, which may wait for the disk

	seen struct {
		sync.Mutex
		// objections has the peers whose last handshake was refused, at most transport.MaxPeers.
		objections map[uint64]objection
		// met has the peers whose last handshake was admitted, at most transport.MaxPeers.
		met map[uint64]replica.Met
		// told has the marks of peers that were met before this node had read its own state.
		told map[uint64][]machine.Mark
	}
}

// An objection is why this node does not admit a peer.
type objection struct {
	name, birth string // the peer's
	verdict     transport.Verdict
	text        string
}

// Admit refuses a node that was removed, one of another cluster, and one that comes with another
// data directory, with an older copy of it, or with another state. A node that is not known yet is
// admitted: this node may not have applied its addition yet, and may need it as its leader.
//
// A start later than the last known one is believed only of a process that answers at its node's
// address: any other may run on a copy of the directory. One that connects to us is admitted once
// it has been met at that address.
func (h peerHandler) Admit(id transport.Identity, dialled bool) error {
	n := h.n
	n.door.Lock()
	defer n.door.Unlock()
	verdict, text, later, err := n.judge(&id)
	if err != nil {
		return err
	}
	if verdict != 0 {
		n.object(&id, verdict, text)
		return transport.NotAdmitted(verdict, text)
	}
	if _, known := n.logged(id.Node); !known {
		n.befriend(transport.Peer{Node: id.Node, Name: id.Name, Address: id.PeerAddress})
	}
	if later && !dialled {
		n.transport.Verify(id.Node)
		return fmt.Errorf("node %s reports start %d of its directory, which has not answered at its address yet: it is admitted once it has; "+
			"if another process runs there, this one uses a copy of the directory: stop it", id.Name, id.Start)
	}
	if err := n.remember(&id, dialled); err != nil {
		return err
	}
	n.welcome(replica.Met{ID: id.Node, Instance: id.Instance, Level: id.Level, Zone: id.Zone})
	return nil
}

// welcome records a peer that is admitted.
func (n *Node) welcome(m replica.Met) {
	seen := &n.door.seen
	seen.Lock()
	delete(seen.objections, m.ID)
	if seen.met == nil || len(seen.met) >= transport.MaxPeers {
		seen.met = make(map[uint64]replica.Met)
	}
	seen.met[m.ID] = m
	seen.Unlock()
	n.inbox.push(m)
}

// recallMet reports to the replica the peers that this node met before the replica existed. The
// loop calls it.
func (n *Node) recallMet() {
	n.door.seen.Lock()
	defer n.door.seen.Unlock()
	// The order does not matter.
	for _, m := range n.door.seen.met {
		n.replica.Step(m)
	}
}

// judge returns what speaks against a peer, if anything, and whether it comes with a later start
// than the last one.
func (n *Node) judge(id *transport.Identity) (v transport.Verdict, text string, later bool, err error) {
	logged, known := n.logged(id.Node)
	if logged.Removed {
		return transport.Removed, replica.RemovedText(logged.Name), false, nil
	}
	if text := n.tooOld(id); text != "" {
		return transport.TooOld, text, false, nil
	}
	if v, text := n.judgeBirth(id); v != 0 {
		return v, text, false, nil
	}
	if known && logged.Instance != [16]byte{} && logged.Instance != id.Instance {
		return transport.Replaced, notThatDirectory(id, logged.Instance), false, nil
	}
	met, ok, err := n.store.KnownInstance(id.Node)
	if err != nil {
		return 0, "", false, err
	}
	if ok && met != storage.InstanceID(id.Instance) {
		return transport.Replaced, notThatDirectory(id, met), false, nil
	}
	last, err := n.store.KnownStart(id.Node)
	if err != nil {
		return 0, "", false, err
	}
	later = last.Number != 0 && id.Start > last.Number
	text = olderCopy(id, last)
	if text == "" && later {
		if text, err = n.forgot(id); err != nil {
			return 0, "", false, err
		}
	}
	if text != "" {
		return transport.OlderCopy, text, false, nil
	}
	if text := n.differs(id); text != "" {
		return transport.Diverged, text, false, nil
	}
	return 0, "", later, nil
}

// level returns the feature level of the cluster as far as this node knows it; zero before it knows
// any.
func (n *Node) level() uint32 {
	if r := n.status.Load(); r != nil {
		return r.Level
	}
	if life := n.life.Load(); life != nil && !life.rootless {
		return command.BirthLevel
	}
	return 0
}

// tooOld returns why a peer cannot apply what the log may hold, or "". Such a peer must not count
// for a majority.
func (n *Node) tooOld(id *transport.Identity) string {
	level, can := n.level(), max(id.Level, 1)
	if can >= level {
		return ""
	}
	return fmt.Sprintf("node %s is older than its cluster, upgrade it: the cluster is at feature level %d, and this build supports %d", id.Name, level, can)
}

// judgeBirth compares the clusters that both nodes belong to, if both know. A cluster that began
// without a birth gets one when its feature level rises, and not all nodes reach that entry at
// once.
func (n *Node) judgeBirth(id *transport.Identity) (transport.Verdict, string) {
	ours, theirs := n.life.Load(), answer{id: *id}.birth()
	if ours == nil || ours.rootless && n.grewFromUs(theirs) || id.Rootless && ours.birth.GrewFrom(n.configured()) {
		return 0, ""
	}
	own := ours.birth.String()
	if ours.rootless {
		own = rootless
	}
	switch {
	case theirs != "" && theirs != own:
		return transport.OtherBirth, fmt.Sprintf("node %s has a data directory of cluster %s, but node %s belongs to cluster %s: "+
			"to move one to the other's cluster, run \"lockstep member replace\" with its name there, and start it with an empty directory "+
			"and --join", id.Name, theirs, n.cfg.Name, own)
	}
	return 0, ""
}

// grewFromUs reports whether a birth was given to the cluster that this node's configuration began.
func (n *Node) grewFromUs(birth string) bool {
	b, err := parseBirth(birth)
	return err == nil && b.GrewFrom(n.configured())
}

const bringBack = "never restore the disk or directory of a single node from a copy: make it a new member with " +
	"\"lockstep member replace %s\", and start it with an empty directory and --join"

func notThatDirectory(id *transport.Identity, known storage.InstanceID) string {
	return fmt.Sprintf("node %s is known here with the data directory %s, and comes with %s: put "+
		"the old directory back, or make it a new member with \"lockstep member replace %s\" and start it with an empty "+
		"directory and --join", id.Name, known, storage.InstanceID(id.Instance), id.Name)
}

// olderCopy compares the starts of a peer's directory with the last one met here. Builds that do
// not count starts report none.
func olderCopy(id *transport.Identity, last storage.Start) string {
	if id.Start == 0 || last.Number == 0 {
		return ""
	}
	if id.Start < last.Number {
		return fmt.Sprintf("node %s has an older copy of its directory, or runs twice: this is its start %d, and start %d has connected before; "+
			bringBack, id.Name, id.Start, last.Number, id.Name)
	}
	if was, known := startsOf(id).At(last.Number); known && was != last.ID {
		return fmt.Sprintf("node %s has an older copy of its directory, or runs twice: its start %d was process %08x here, but is %08x in its own records; "+
			bringBack, id.Name, last.Number, last.ID, was, id.Name)
	}
	return ""
}

// forgot determines, on the leader, whether a new process of a peer lacks entries that are
// committed and that an earlier process acknowledged: it then runs on an earlier copy of the
// directory. None of the new process's own acknowledgements can be among them, because no stream of
// a later start is admitted before this check.
func (n *Node) forgot(id *transport.Identity) (text string, err error) {
	if n.status.Load() == nil || id.LastEntry == 0 {
		return "", nil
	}
	r, err := n.freshStatus()
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(r.Peers, func(p replica.Peer) bool { return p.ID == id.Node })
	if i < 0 || id.LastEntry >= min(r.Peers[i].Match, r.Committed) {
		return "", nil
	}
	return fmt.Sprintf("node %s has an older copy of its directory: its log ends at entry %d, but it has acknowledged entry %d; "+
		bringBack, id.Name, id.LastEntry, min(r.Peers[i].Match, r.Committed), id.Name), nil
}

// freshWait bounds the wait for the loop, which answers within a turn.
const freshWait = time.Second

// freshStatus returns the replica's status after everything that had arrived when it was requested.
func (n *Node) freshStatus() (*replica.Status, error) {
	asked := n.asked.Add(1)
	n.inbox.ring()
	for began := time.Now(); n.answered.Load() < asked && !n.looped.Load(); time.Sleep(time.Millisecond) {
		if time.Since(began) > freshWait {
			return nil, errors.New("node: this node is too busy to report what its peers have acknowledged")
		}
	}
	if n.looped.Load() {
		return nil, errors.New("node: this node is stopping")
	}
	return n.status.Load(), nil
}

// remember durably records the directory of an admitted peer, and its start if the peer answers at
// its address. If our stream leads to an earlier start, it is dialled again.
//
// Only members are remembered. A peer that is not known as a member yet, but that this node may
// need as its leader, is met again once it is; see refreshPeers.
func (n *Node) remember(id *transport.Identity, dialled bool) error {
	if _, member := n.known(id.Node); !member {
		return nil
	}
	if _, ok, err := n.store.KnownInstance(id.Node); err != nil {
		return err
	} else if !ok {
		if err := n.store.RememberInstance(id.Node, id.Instance); err != nil {
			return err
		}
	}
	last, err := n.store.KnownStart(id.Node)
	if err != nil || id.Start <= last.Number || !dialled {
		return err
	}
	now, _ := startsOf(id).At(id.Start)
	if err := n.store.RememberStart(id.Node, storage.Start{Number: id.Start, ID: now}); err != nil {
		return err
	}
	if last.Number != 0 {
		n.transport.Reset(id.Node)
	}
	return nil
}

// differs compares the states at the newest entry for which both know the hash. What a peer reports
// before this node has read its own state is compared later.
func (n *Node) differs(id *transport.Identity) string {
	theirs, own := marksOf(id), n.marks.Load()
	if own == nil {
		seen := &n.door.seen
		seen.Lock()
		defer seen.Unlock()
		if seen.told == nil || len(seen.told) >= transport.MaxPeers {
			seen.told = make(map[uint64][]machine.Mark)
		}
		seen.told[id.Node] = theirs
		return ""
	}
	index, differ := machine.Differ(*own, theirs)
	if !differ {
		return ""
	}
	return fmt.Sprintf("the states of node %s and node %s differ at entry %d of the same log: one of them is damaged, or comes from another "+
		"history; find out which with \"lockstep status\" and \"lockstep ls\" at each, and make that one a new member with \"lockstep member replace\"",
		id.Name, n.cfg.Name, index)
}

// object records a refusal, and logs it at intervals.
func (n *Node) object(id *transport.Identity, v transport.Verdict, text string) {
	seen := &n.door.seen
	seen.Lock()
	if seen.objections == nil || len(seen.objections) >= transport.MaxPeers {
		seen.objections = make(map[uint64]objection)
	}
	seen.objections[id.Node] = objection{id.Name, answer{id: *id}.birth(), v, text}
	seen.Unlock()
	if n.notes.due(fmt.Sprintf("refused %x %d %s", id.Node, v, id.ClientAddress)) {
		log := n.log.Warn
		if v == transport.OlderCopy || v == transport.Diverged {
			log = n.log.Error
		}
		log("peer refused", "peer", id.Name, "address", id.PeerAddress, "clients at", id.ClientAddress, "start", id.Start,
			"another is connected", n.reachable(id.Node), "reason", text)
	}
	n.noteWaiting()
}

// noteWaiting logs at intervals that this node takes no part.
func (n *Node) noteWaiting() {
	if waits := n.waiting(); waits != "" && n.notes.due("waiting") {
		n.log.Warn("this node does not participate, and waits", "reason", waits)
	}
}

// reachable reports whether our own stream to a node is up. It may lead to another process than the
// one at the door.
func (n *Node) reachable(node uint64) bool {
	p, ok := n.peerStatus()[node]
	return ok && p.Reachable
}

// Rejected ends the node when a majority of the members says that it was removed or replaced: it
// must not vote or acknowledge under an id whose past it has lost. Otherwise it waits.
func (h peerHandler) Rejected(node uint64, err error) {
	n := h.n
	if n.notes.due(fmt.Sprintf("rejected %x %d", node, transport.VerdictOf(err))) {
		n.log.Warn("rejected by a peer", "peer", n.nameOf(node), "reason", err)
	}
	if transport.VerdictOf(err) == transport.OlderCopy && slices.Contains(n.voters(), node) {
		n.stayOut(n.nameOf(node) + ": " + err.Error())
	}
	n.noteWaiting()
	count, texts := map[transport.Verdict]int{}, map[transport.Verdict]string{}
	voters := n.voters()
	for _, p := range n.transport.Peers() {
		if slices.Contains(voters, p.Node) {
			count[p.Verdict]++
			texts[p.Verdict] = p.Name + ": " + p.Problem
		}
	}
	for v, end := range map[transport.Verdict]error{transport.Removed: ErrRemoved, transport.Replaced: ErrReplaced} {
		if count[v] >= enoughOf(voters, n.id.Load()) {
			n.fatal(fmt.Errorf("%w: %s", end, texts[v]))
		}
	}
}

// stayOut records durably that a member at its own address has found this directory to be an older
// copy. The node takes no part from then on, even if that member is down later: what this copy
// lacks may have counted for a majority.
func (n *Node) stayOut(why string) {
	if n.out.Load() != nil {
		return
	}
	n.out.Store(&why)
	if err := n.store.RememberOldCopy(why); err != nil {
		n.fatal(fmt.Errorf("node: %w", err))
	}
}

// voters lists the ids of the voters as far as this node knows them.
func (n *Node) voters() (ids []uint64) {
	if r := n.status.Load(); r != nil {
		return r.Voters
	}
	for _, m := range n.members {
		ids = append(ids, m.ID)
	}
	return ids
}

// enoughOf applies enough to the voters that a node knows, of which it need not be one.
func enoughOf(voters []uint64, self uint64) int {
	others := len(voters)
	if slices.Contains(voters, self) {
		others--
	}
	return enough(len(voters), others)
}

// waiting returns why this node does not take part, or "": its directory is an older copy, or it
// waits for others, or it and so many members refuse each other that the rest is not a majority.
func (n *Node) waiting() string {
	if out := n.out.Load(); out != nil {
		return *out
	}
	if w := n.waits.Load(); w != nil {
		return "waiting for the other initial members: " + *w
	}
	if n.status.Load() == nil {
		return ""
	}
	peers, voters := n.peerStatus(), n.voters()
	n.door.seen.Lock()
	defer n.door.seen.Unlock()
	var names []string
	var text, birth string
	for _, id := range voters {
		o, ours := n.door.seen.objections[id]
		ours = ours && !peers[id].Reachable // else it is another process that was refused
		switch {
		case ours && o.verdict == transport.OtherBirth:
			names, birth, text = append(names, o.name), o.birth, o.text
		case ours:
			names, text = append(names, o.name), o.text
		case peers[id].Verdict != 0:
			names, text = append(names, peers[id].Name), cmp.Or(text, peers[id].Problem)
		}
	}
	if len(names) == 0 || len(names) < enoughOf(voters, n.id.Load()) {
		return ""
	}
	slices.Sort(names)
	all := strings.Join(names, ", ")
	if birth != "" {
		return fmt.Sprintf("the data directory of this node belongs to cluster %s, but %s belong to cluster %s: to move this node there, run "+
			"\"lockstep member replace %s\" there, and start this node with an empty directory and --join", n.clusterID(), all, birth, n.cfg.Name)
	}
	return fmt.Sprintf("out of step with %s: %s", all, text)
}

// compareTold compares with what peers reported before this node had read its own state. The loop
// calls it.
func (n *Node) compareTold() {
	own, seen := *n.marks.Load(), &n.door.seen
	seen.Lock()
	defer seen.Unlock()
	for node, theirs := range seen.told {
		if _, differ := machine.Differ(own, theirs); differ {
			n.transport.Reset(node) // the next handshake reports it to both sides
		}
	}
	seen.told = nil
}
