package etcdfence

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockstep-dev/lockstep"
)

// refusals lists the etcd errors that mean that a request had no effect. None maps to ErrInvalid,
// which would be a verdict about the writer.
var refusals = []struct{ etcd, means error }{
	{rpctypes.ErrNoSpace, lockstep.ErrQuota},
	{rpctypes.ErrRequestTooLarge, lockstep.ErrQuota},
	{rpctypes.ErrTooManyOps, lockstep.ErrQuota},
	{rpctypes.ErrTooManyRequests, lockstep.ErrUnavailable},
	{rpctypes.ErrPermissionDenied, lockstep.ErrUnavailable},
	{rpctypes.ErrAuthFailed, lockstep.ErrUnavailable},
	{rpctypes.ErrUserEmpty, lockstep.ErrUnavailable},
	{rpctypes.ErrLeaseNotFound, lockstep.ErrUnavailable}, // a lease named in one of the user's operations
}

// outcome is the error of a transaction that may have written.
func outcome(err error) error {
	for _, r := range refusals {
		if errors.Is(err, r.etcd) {
			return fmt.Errorf("%w: %w", r.means, err)
		}
	}
	if errors.Is(err, rpctypes.ErrDuplicateKey) {
		return err
	}
	return fmt.Errorf("%w: %w", lockstep.ErrUncertain, err)
}

// unavailable is the error of a call that only reads.
func unavailable(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, err)
}
