package etcdfence

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// keys are the keys of one resource.
type keys struct{ mark, written, data string }

func keysOf(prefix, resource string) keys {
	return keys{mark: prefix + "/mark/" + resource, written: prefix + "/written/" + resource, data: prefix + "/data/" + resource}
}

// digits is the length of a stored token, so that comparing bytes is comparing numbers.
// [lockstep.MaxToken] + 1 has the same length.
const digits = 16

func pad(t lockstep.Token) string { return fmt.Sprintf("%0*d", digits, uint64(t)) }

// binding is the common prefix of the marks of one lock.
func binding(backend, lock string) string { return backend + " " + lock + "\n" }

// conditions hold if and only if there is a mark and it admits the step.
func conditions(k keys, g fence.Grant, s fence.Step) []clientv3.Cmp {
	b := binding(g.Backend, g.Lock)
	all := []clientv3.Cmp{
		// The next two lines together: the mark begins with b, and the rest is a token that is not
		// later.
		clientv3.Compare(clientv3.Value(k.mark), ">", b),
		clientv3.Compare(clientv3.Value(k.mark), "<", b+pad(g.Token+1)),
		clientv3.Compare(clientv3.CreateRevision(k.written), ">", 0),
	}
	if s == fence.WriteOnce {
		// The token of the last write is at most the highest token, so it is an earlier one or this
		// one.
		all = append(all, clientv3.Compare(clientv3.Value(k.written), "!=", pad(g.Token)))
	}
	return all
}

// absent holds if and only if there is no mark.
func absent(k keys) []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(k.mark), "=", 0),
		clientv3.Compare(clientv3.CreateRevision(k.written), "=", 0),
	}
}

// storing returns the writes that store a mark.
func storing(k keys, m fence.Mark) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpPut(k.mark, binding(m.Backend, m.Lock)+pad(m.Token)),
		clientv3.OpPut(k.written, pad(m.Written)),
	}
}

// raising returns the writes that raise an existing mark. Entering does not touch the token of the
// last write.
func raising(k keys, g fence.Grant, s fence.Step) []clientv3.Op {
	ops := storing(k, fence.Mark{Backend: g.Backend, Lock: g.Lock, Token: g.Token, Written: g.Token})
	if s == fence.Enter {
		return ops[:1]
	}
	return ops
}

// errNoMark is not ErrInvalid: it is not a verdict about a writer.
var errNoMark = errors.New("the keys of the mark hold something that is no mark")

// parse reads a mark from its keys. Either both exist or neither does.
func parse(mark, written string, found int) (fence.Mark, error) {
	if found == 0 {
		return fence.Mark{}, nil
	}
	names, token, ok := strings.Cut(mark, "\n")
	backend, lock, both := strings.Cut(names, " ")
	seen, err := parseToken(token)
	last, errWritten := parseToken(written)
	if found != 2 || !ok || !both || err != nil || errWritten != nil || last > seen {
		return fence.Mark{}, errNoMark
	}
	return fence.Mark{Backend: backend, Lock: lock, Token: seen, Written: last}, nil
}

func parseToken(s string) (lockstep.Token, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || len(s) != digits || lockstep.Token(n) > lockstep.MaxToken {
		return 0, errNoMark
	}
	return lockstep.Token(n), nil
}
