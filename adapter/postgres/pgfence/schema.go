package pgfence

import (
	"cmp"
	"context"
	_ "embed" // for the statements
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

//go:embed schema.sql
var schema string

//go:embed protect.sql
var protect string

// DefaultTable is the default marks table.
const DefaultTable = "public.lockstep_guards"

// defaultSchema is the schema of tables named without one. The search path does not matter:
// programs with different search paths must share the same marks.
const defaultSchema = "public"

// An Executor runs statements: a *pgxpool.Pool, a *pgx.Conn or a [pgx.Tx].
type Executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Schema returns the statements that create the marks table and the trigger function, for programs
// that have their own migrations. The table is that of [Config]; empty means [DefaultTable]. A name
// that breaks the rules is a [*lockstep.InvalidError].
func Schema(table string) (string, error) {
	n, err := namesOf(table)
	if err != nil {
		return "", err
	}
	return n.fill(schema), nil
}

// Migrate runs [Schema] in one transaction. The user needs the right to create tables and
// functions. Many programs may call it at once.
func Migrate(ctx context.Context, db Executor, table string) error {
	statements, err := Schema(table)
	if err != nil {
		return err
	}
	return run(ctx, db, "create the table of the marks", statements)
}

// ProtectSchema returns the statement that creates a trigger on the table protected, so that a
// writer in any language is refused unless it has declared the token of the resource's lock in its
// transaction. table is the marks table; both names are table or schema.table, where the default
// schema is public. The whole table is one resource.
func ProtectSchema(table, protected, resource string) (string, error) {
	n, err := namesOf(table)
	if err != nil {
		return "", err
	}
	quoted, err := quote("protected", protected, maxIdentifier)
	if err != nil {
		return "", err
	}
	if err := checkResource(resource); err != nil {
		return "", err
	}
	return strings.NewReplacer("{protected}", quoted, "{resource}", literal(resource)).Replace(n.fill(protect)), nil
}

// Protect runs [ProtectSchema]. The user must own the protected table. It waits for open
// transactions that write to that table.
func Protect(ctx context.Context, db Executor, table, protected, resource string) error {
	statement, err := ProtectSchema(table, protected, resource)
	if err != nil {
		return err
	}
	return run(ctx, db, "protect "+protected, statement)
}

func run(ctx context.Context, db Executor, what, statements string) error {
	// The simple protocol runs several statements at once, in one transaction.
	if _, err := db.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// names holds the quoted names of the marks table and of the trigger function.
type names struct{ table, function string }

// PostgreSQL truncates identifiers to 63 bytes. The function's name is the table's name and a
// suffix.
const (
	maxIdentifier  = 63
	functionSuffix = "_check"
)

func namesOf(table string) (names, error) {
	table = cmp.Or(table, DefaultTable)
	quoted, err := quote("Table", table, maxIdentifier-len(functionSuffix))
	if err != nil {
		return names{}, err
	}
	return names{table: quoted, function: strings.TrimSuffix(quoted, `"`) + functionSuffix + `"`}, nil
}

func (n names) fill(statements string) string {
	return strings.NewReplacer("{table}", n.table, "{function}", n.function).Replace(statements)
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// quote returns the name of a table, quoted for statements.
func quote(field, table string, longest int) (string, error) {
	parts := strings.Split(table, ".")
	if len(parts) == 1 {
		parts = []string{defaultSchema, table}
	}
	for _, part := range parts {
		if !identifier.MatchString(part) || len(part) > longest || len(parts) > 2 {
			return "", &lockstep.InvalidError{
				Field: field, Value: lockstep.Excerpt(table),
				Rule: fmt.Sprintf("must be table or schema.table, each 1 to %d letters, digits and _, not beginning with a digit", longest),
			}
		}
	}
	return pgx.Identifier(parts).Sanitize(), nil
}

// literal formats text as an SQL string, whatever standard_conforming_strings is.
func literal(text string) string {
	return " E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(text) + "'"
}

// checkResource refuses, in addition to the rules of guards, what PostgreSQL cannot store.
func checkResource(resource string) error {
	if err := fence.CheckResource(resource); err != nil {
		return err
	}
	if strings.ContainsRune(resource, 0) {
		return &lockstep.InvalidError{Field: "resource", Value: lockstep.Excerpt(resource), Rule: "must not contain the character U+0000, which PostgreSQL cannot store"}
	}
	return nil
}
