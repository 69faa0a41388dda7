package pglock

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-dev/lockstep"
)

// ErrTable means that the locks table is missing, does not match [Schema], or that the user has no
// right to use it. Such an error also matches [lockstep.ErrUnsupported].
var ErrTable = errors.New("pglock: the table of the locks cannot be used: run pglock.Migrate or the statements of pglock.Schema, and grant SELECT, INSERT and UPDATE")

// wrongTable lists the conditions that ErrTable stands for.
var wrongTable = []string{
	"42P01", // undefined_table
	"42703", // undefined_column
	"42P10", // invalid_column_reference: ON CONFLICT finds no unique index
	"42804", // datatype_mismatch
	"3F000", // invalid_schema_name
	"42501", // insufficient_privilege
}

// wrongText lists the conditions raised by a name or label that the encoding of the database cannot
// hold.
var wrongText = []string{
	"22021", // character_not_in_repertoire
	"22P05", // untranslatable_character
}

// outcome says what is known about a statement that was passed to a connection and failed. The
// statement has no effect
//
//   - if pgx certainly has not sent it;
//   - if the server answered with an ERROR, which ends its transaction. A FATAL error ends the
//     connection and may come after the transaction has committed. Poolers report the loss of their
//     connection to the server as an error of class 08, some of them without a severity.
//
// Anything else is [lockstep.ErrUncertain].
func outcome(err error) error {
	refusal, refused := errors.AsType[*pgconn.PgError](err)
	switch {
	case pgconn.SafeToRetry(err):
		return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, err)
	case !refused || refusal.SeverityUnlocalized != "ERROR" || isLoss(refusal.Code):
		return fmt.Errorf("%w: %w", lockstep.ErrUncertain, err)
	case slices.Contains(wrongTable, refusal.Code):
		return fmt.Errorf("%w: %w: %w", lockstep.ErrUnsupported, ErrTable, err)
	case slices.Contains(wrongText, refusal.Code):
		return fmt.Errorf("%w: the encoding of the database should be UTF8: %w", lockstep.ErrInvalid, err)
	default:
		return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, err)
	}
}

// isLoss reports whether the condition is a lost connection or a server shutdown:
// connection_exception, admin_shutdown, crash_shutdown, cannot_connect_now, database_dropped,
// idle_session_timeout.
func isLoss(code string) bool {
	return len(code) != 5 || code[:2] == "08" || code[:4] == "57P0"
}
