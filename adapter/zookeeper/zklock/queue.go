package zklock

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/lockstep-dev/lockstep"
)

// dirOf is the directory of a lock: its name as one segment, with "/", "%" and everything that
// ZooKeeper forbids escaped.
func dirOf(root, name string) string { return root + "/locks/" + url.PathEscape(name) }

// The nodes of a lock are named x-ID-NUMBER for exclusive and s-ID-NUMBER for shared claims: ID is
// the claim's id, 32 hexadecimal digits, and NUMBER is assigned by ZooKeeper.
const (
	idBytes     = 32
	prefixBytes = len("x-") + idBytes + len("-")
)

// nodePrefix is a node's name without its number.
func nodePrefix(mode lockstep.Mode, id string) string {
	kind := "x"
	if mode == lockstep.Shared {
		kind = "s"
	}
	return kind + "-" + id + "-"
}

// A node is one claim in the queue of a lock.
type node struct {
	name     string
	id       string
	isShared bool
	number   int32
}

// parseNode parses the name of a node. A node that is not a claim is not ours.
func parseNode(name string) (node, bool) {
	if len(name) <= prefixBytes || name[1] != '-' || name[prefixBytes-1] != '-' || name[0] != 'x' && name[0] != 's' {
		return node{}, false
	}
	number, err := strconv.ParseInt(name[prefixBytes:], 10, 32)
	return node{name, name[2 : 2+idBytes], name[0] == 's', int32(number)}, err == nil
}

// A queue holds the claims of a lock, in order of arrival.
type queue []node

func parseQueue(names []string) queue {
	var q queue
	for _, name := range names {
		if n, ok := parseNode(name); ok {
			q = append(q, n)
		}
	}
	slices.SortFunc(q, func(a, b node) int { return int(int64(a.number) - int64(b.number)) })
	return q
}

// find returns the index of a claim, or -1.
func (q queue) find(id string) int {
	return slices.IndexFunc(q, func(n node) bool { return n.id == id })
}

// blocker returns the index of the claim that the one at i has to wait for, or -1 if there is none:
// for an exclusive claim the one before it, which itself waits for those before it; for a shared
// claim the nearest exclusive one before it.
func (q queue) blocker(i int) int {
	if !q[i].isShared {
		return i - 1
	}
	for at := i - 1; at >= 0; at-- {
		if !q[at].isShared {
			return at
		}
	}
	return -1
}

// holders returns how many claims at the head of the queue hold the lock or are about to.
func (q queue) holders() int {
	if len(q) > 0 && !q[0].isShared {
		return 1
	}
	if writer := slices.IndexFunc(q, func(n node) bool { return !n.isShared }); writer >= 0 {
		return writer
	}
	return len(q)
}

// checkNumber refuses numbers beyond ZooKeeper's range: after that it keeps assigning the same one.
func checkNumber(n node) error {
	if n.number < 0 {
		return fmt.Errorf("%w: ZooKeeper has numbered 2^31 claims of this name; leave it unused for two minutes", lockstep.ErrQuota)
	}
	return nil
}

// tokenOf makes a token from the transaction that created a node.
func tokenOf(czxid int64) (lockstep.Token, error) {
	if czxid < 1 || lockstep.Token(czxid) > lockstep.MaxToken {
		return 0, fmt.Errorf("%w: transaction %#x of ZooKeeper is no token, which is 1 to 2^53-1: it has had more than 2^21 elections",
			lockstep.ErrUnsupported, czxid)
	}
	return lockstep.Token(czxid), nil
}

// join returns the path of a node in a directory.
func join(dir, name string) string { return dir + "/" + name }
