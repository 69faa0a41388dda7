package etcdlock

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockstep-dev/lockstep"
)

// refusals lists the etcd errors that mean that a request had no effect and will have none. Any
// other error leaves that open.
var refusals = []struct{ etcd, means error }{
	{rpctypes.ErrNoSpace, lockstep.ErrQuota},
	{rpctypes.ErrRequestTooLarge, lockstep.ErrQuota},
	{rpctypes.ErrTooManyOps, lockstep.ErrQuota},
	{rpctypes.ErrPermissionDenied, lockstep.ErrInvalid},
	{rpctypes.ErrAuthFailed, lockstep.ErrInvalid},
	{rpctypes.ErrUserEmpty, lockstep.ErrInvalid},
	{rpctypes.ErrLeaseNotFound, &lockstep.LossError{Reason: lockstep.SessionExpired, Detail: "etcd has no such lease"}},
}

// translate maps an etcd refusal to the contract's error. final is false for an error that may be
// temporary.
func translate(err error) (translated error, final bool) {
	for _, r := range refusals {
		if errors.Is(err, r.etcd) {
			if errors.Is(r.means, lockstep.ErrLost) {
				return r.means, true
			}
			return fmt.Errorf("%w: %w", r.means, err), true
		}
	}
	return err, false
}

// isCertain reports whether an error already says, in terms of the contract, that nothing was done.
func isCertain(err error) bool {
	return errors.Is(err, lockstep.ErrBusy) || errors.Is(err, lockstep.ErrQuota) || errors.Is(err, lockstep.ErrInvalid)
}

// unavailable is the error of a request that had no effect and got no useful answer.
func unavailable(err error) error {
	if translated, final := translate(err); final {
		return translated
	}
	return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, err)
}

// ofReading is the error of a call that only reads: the end of the caller's context is not an
// outage.
func ofReading(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return unavailable(err)
}
