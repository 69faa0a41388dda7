package pgfence

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// ErrTable means that the marks table is missing, does not match [Schema], or that the user has no
// right to use it. Such an error also matches [lockstep.ErrUnsupported].
var ErrTable = errors.New("pgfence: the table of the marks cannot be used: run pgfence.Migrate or the statements of pgfence.Schema, and grant SELECT, INSERT and UPDATE")

// wrongTable lists the conditions that ErrTable stands for: undefined_table, undefined_column,
// invalid_column_reference, datatype_mismatch, invalid_schema_name, insufficient_privilege.
var wrongTable = []string{"42P01", "42703", "42P10", "42804", "3F000", "42501"}

// lockNotAvailable is the condition after lock_timeout.
const lockNotAvailable = "55P03"

// The conditions that the trigger raises, as SQLSTATE.
const (
	// CodeStale stands for [fence.ErrStale].
	CodeStale = "LKS01"
	// CodeForeign stands for [fence.ErrForeign].
	CodeForeign = "LKS02"
	// CodeNoToken stands for [fence.ErrNoToken].
	CodeNoToken = "LKS03"
	// CodeInvalid stands for [lockstep.ErrInvalid]: the settings are malformed.
	CodeInvalid = "LKS04"
)

var verdicts = map[string]error{CodeStale: fence.ErrStale, CodeForeign: fence.ErrForeign, CodeNoToken: fence.ErrNoToken}

// Verdict turns the error of a write that the trigger refused into the verdict that a Guard would
// have returned for the grant: a [*fence.RefusedError] or [*lockstep.InvalidError]. Other errors,
// and nil, are returned as they are. It recognizes the errors of any driver that have a method
// SQLState, as those of pgx and lib/pq do; only with pgx is the mark filled in.
func Verdict(err error, grant fence.Grant) error {
	code := state(err)
	if code == CodeInvalid {
		return &lockstep.InvalidError{Field: "lockstep.token", Value: fmt.Sprint(uint64(grant.Token)), Rule: err.Error()}
	}
	why, refused := verdicts[code]
	if !refused {
		return err
	}
	verdict := &fence.RefusedError{Reason: why, Grant: grant}
	if raised, ok := errors.AsType[*pgconn.PgError](err); ok && raised.Detail != "" {
		// The reason suffices if the detail cannot be read.
		_ = json.Unmarshal([]byte(raised.Detail), &verdict.Mark)
	}
	return verdict
}

// state returns the SQLSTATE of an error, or "".
func state(err error) string {
	raised, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok {
		return ""
	}
	return raised.SQLState()
}

// reason wraps a database error with the sentinel that the caller can act on.
func reason(err error) error {
	switch code := state(err); {
	case code == lockNotAvailable:
		return fmt.Errorf("%w: %w", fence.ErrBusy, err)
	case slices.Contains(wrongTable, code):
		return fmt.Errorf("%w: %w: %w", lockstep.ErrUnsupported, ErrTable, err)
	}
	return err
}
