package etcdfence

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// maxOps leaves room for the mark in a transaction, which etcd limits to 128 operations by default.
const maxOps = 120

// Commit takes a step of a grant, [fence.Write] or [fence.WriteOnce], with your own writes: puts
// and deletions of any keys, all in the transaction that checks the mark. There may be 1 to 120 of
// them, with at most [MaxValueBytes] of keys and values in total, and none may be below the Prefix
// of the [Config], except the [Guard.DataKey] of this resource. Commit does not return what they
// read, and does not accept nested transactions.
func (g *Guard) Commit(ctx context.Context, resource string, grant fence.Grant, s fence.Step, ops ...clientv3.Op) error {
	if err := g.checkOps(resource, s, ops); err != nil {
		return named("commit", resource, err)
	}
	return g.step(ctx, resource, grant, s, ops)
}

func (g *Guard) checkOps(resource string, s fence.Step, ops []clientv3.Op) error {
	if s != fence.Write && s != fence.WriteOnce {
		return &lockstep.InvalidError{Field: "step", Value: s.String(), Rule: "must be Write or WriteOnce"}
	}
	if len(ops) == 0 || len(ops) > maxOps {
		return &lockstep.InvalidError{Field: "ops", Value: fmt.Sprint(len(ops)), Rule: fmt.Sprintf("must be 1 to %d", maxOps)}
	}
	size := 0
	for _, op := range ops {
		size += len(op.KeyBytes()) + len(op.RangeBytes()) + len(op.ValueBytes())
		switch key := string(op.KeyBytes()); {
		case !op.IsPut() && !op.IsDelete():
			return &lockstep.InvalidError{Field: "ops", Value: lockstep.Excerpt(key), Rule: "must be puts and deletions"}
		case g.reaches(op) && (key != g.DataKey(resource) || len(op.RangeBytes()) > 0):
			return &lockstep.InvalidError{
				Field: "ops", Value: lockstep.Excerpt(key), Rule: "must not reach keys below " + g.cfg.Prefix + "/, but for the data of the resource",
			}
		}
	}
	if size > MaxValueBytes {
		return &lockstep.InvalidError{Field: "ops", Rule: fmt.Sprintf("have %d bytes of keys and values, the limit is %d", size, MaxValueBytes)}
	}
	return nil
}

// reaches reports whether an operation touches keys below the prefix.
func (g *Guard) reaches(op clientv3.Op) bool {
	first, end := g.cfg.Prefix+"/", g.cfg.Prefix+"0" // "0" is the character after "/"
	key, rangeEnd := string(op.KeyBytes()), string(op.RangeBytes())
	switch rangeEnd {
	case "":
		return key >= first && key < end
	case "\x00": // all keys from first on
		return key < end
	default:
		return key < end && rangeEnd > first
	}
}
