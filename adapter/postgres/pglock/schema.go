package pglock

import (
	"context"
	_ "embed" // for the schema
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed schema.sql
var schema string

// Schema returns the statements that create the table, for programs that have their own migrations.
// The table is that of [Config]; empty means [DefaultTable]. A name that breaks the rules is a
// [*lockstep.InvalidError].
func Schema(table string) (string, error) {
	quoted, err := quoteTable(table)
	if err != nil {
		return "", err
	}
	return strings.ReplaceAll(schema, "{table}", quoted), nil
}

// Migrate creates the table if it does not exist, by running [Schema] in one transaction. The user
// of the pool needs the right to create tables; using the locks takes SELECT, INSERT and UPDATE.
// Many programs may call it at once.
func Migrate(ctx context.Context, pool *pgxpool.Pool, table string) error {
	statements, err := Schema(table)
	if err != nil {
		return err
	}
	// The simple protocol runs several statements at once, in one transaction.
	if _, err := pool.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("create the table of the locks: %w", err)
	}
	return nil
}
