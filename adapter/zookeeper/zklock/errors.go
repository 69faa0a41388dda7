package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/lockstep-dev/lockstep"
)

// answers lists the errors that are a server's answer: the request had no effect. After any other
// error from the library the request may have taken effect, and can be repeated when the connection
// is back.
var answers = []error{
	zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals, zk.ErrBadArguments,
	zk.ErrInvalidPath, zk.ErrInvalidFlags,
	lockstep.ErrLost, lockstep.ErrInvalid, lockstep.ErrQuota, lockstep.ErrUnsupported, lockstep.ErrClosed,
}

// meanings maps errors of the library, by their texts, to those of the contract: the library has no
// names for two of them.
var meanings = map[string]error{
	zk.ErrSessionExpired.Error(): &lockstep.LossError{Reason: lockstep.SessionExpired, Detail: "ZooKeeper has ended the session"},
	zk.ErrNoAuth.Error():         &lockstep.InvalidError{Field: "user", Rule: "has no right to this: the node's ACL refuses it"},
	zk.ErrAuthFailed.Error():     &lockstep.InvalidError{Field: "user", Rule: "was refused by ZooKeeper"},
	zk.ErrInvalidACL.Error():     &lockstep.InvalidError{Field: "acl", Rule: "was refused by ZooKeeper"},
	"unknown error: -125":        lockstep.ErrQuota,       // QuotaExceeded
	"unknown error: -6":          lockstep.ErrUnsupported, // Unimplemented: a server older than 3.5.3 has no container nodes
}

// explain maps an error of the library to the contract's.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if meaning, known := meanings[err.Error()]; known {
		return meaning
	}
	return err
}

// isBroken reports whether the connection broke, so that the outcome of a request is unknown.
func isBroken(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	for _, answer := range answers {
		if errors.Is(err, answer) {
			return false
		}
	}
	return true
}

// missing is the loss of a claim whose node does not exist.
func missing(detail string) *lockstep.LossError {
	return &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: detail}
}
