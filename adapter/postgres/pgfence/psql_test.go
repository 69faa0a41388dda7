package pgfence_test

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-dev/lockstep/adapter/postgres/pgfence"
	"github.com/lockstep-dev/lockstep/fence"
)

// typed runs statements in psql, as if typed by a person, and returns what it prints. It stops at
// the first error.
func typed(t *testing.T, url string, statements ...string) (printed string, ok bool) {
	t.Helper()
	psql, err := exec.LookPath("psql")
	if err != nil {
		t.Fatalf("psql is not installed (on Debian: apt-get install postgresql-client): %v", err)
	}
	cmd := exec.CommandContext(within(t), psql, url, "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1")
	cmd.Stdin = strings.NewReader(strings.Join(statements, ";\n") + ";\n")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err == nil
}

// said is how a writer in another language starts its transaction.
func said(token int) string {
	return fmt.Sprintf("BEGIN; SET LOCAL lockstep.backend = 'memory:test'; SET LOCAL lockstep.lock = 'reports'; SET LOCAL lockstep.token = '%d'", token)
}

func TestAStaleUpdateTypedInPsqlIsRefused(t *testing.T) {
	s, b := sharedServers(t)
	pool, ctx, name := openPool(t, s.URL()), within(t), fresh(t)
	table := protected(t, pool, name)
	guard := newGuard(t, pgfence.Config{})
	refused := func(what, want string, statements ...string) {
		t.Helper()
		if printed, ok := typed(t, b.URL(), statements...); ok || !strings.Contains(printed, want) {
			t.Errorf("%s: psql succeeded: %v, and printed\n%swant %q", what, ok, printed, want)
		}
	}
	admitted := func(statements ...string) {
		t.Helper()
		if printed, ok := typed(t, b.URL(), statements...); !ok {
			t.Fatalf("psql refused: %s", printed)
		}
	}
	insert := fmt.Sprintf("INSERT INTO %s VALUES (1, 10)", table)
	update := fmt.Sprintf("UPDATE %s SET value = value + 1", table)

	admitted(said(7), insert, "COMMIT")
	must(t, guard.Marks(pool).Admit(ctx, name, grant(8), fence.Enter)) // the next holder, in Go, has written nothing yet
	refused("a stale UPDATE", "stale token 7 of lock reports: "+name+" has seen 8", said(7), update, "COMMIT")
	refused("the advice", "Stop, and do not retry with this token.", said(7), update, "COMMIT")
	refused("no token", "no fencing token", update)
	refused("no token after another's transaction", "no fencing token", said(8), update, "ROLLBACK", update)
	refused("another lock", "belongs to lock reports of memory:test, not to other of memory:test", said(9), "SET LOCAL lockstep.lock = 'other'", update)
	refused("no number", "must be 1 to 9007199254740991", said(9), "SET LOCAL lockstep.token = 'nine'", update)
	refused("too large", "must be 1 to 9007199254740991", said(9), "SET LOCAL lockstep.token = '9007199254740992'", update)
	for _, statement := range []string{"DELETE FROM %s", "TRUNCATE %s", "INSERT INTO %s VALUES (2, 0)", "COPY %s FROM '/dev/null'", "UPDATE %s SET id = id WHERE false"} {
		refused(statement, "stale token 7", said(7), fmt.Sprintf(statement, table), "COMMIT")
		refused(statement, "no fencing token", fmt.Sprintf(statement, table))
	}
	admitted(said(8), update, update, "COMMIT")
	if printed, _ := typed(t, s.URL(), "SELECT id, value FROM "+table); printed != "1|12\n" {
		t.Errorf("the table holds %q, want the two updates of token 8 alone", printed)
	}
}

// A writer needs no rights on the marks, so it cannot lower them.
func TestAWriterNeedsNoRightOnTheMarks(t *testing.T) {
	s, _ := sharedServers(t)
	pool, name := openPool(t, s.URL()), fresh(t)
	table, role := protected(t, pool, name), fresh(t)
	execute(t, pool, "CREATE ROLE "+role)
	execute(t, pool, fmt.Sprintf("GRANT SELECT, INSERT, UPDATE ON %s TO %s", table, role))
	as := "SET ROLE " + role
	if printed, ok := typed(t, s.URL(), as, said(7), fmt.Sprintf("INSERT INTO %s VALUES (1, 1)", table), "COMMIT"); !ok {
		t.Errorf("a write of the role was refused: %s", printed)
	}
	if printed, ok := typed(t, s.URL(), as, "UPDATE lockstep_guards SET token = 1"); ok || !strings.Contains(printed, "permission denied") {
		t.Errorf("the role lowered the marks: %s", printed)
	}
	// The role's own table with the name of the marks table is not mistaken for it.
	fake := "CREATE TEMPORARY TABLE lockstep_guards (resource text PRIMARY KEY, backend text, lock text, token bigint, written bigint)"
	if printed, ok := typed(t, s.URL(), as, fake, said(6), fmt.Sprintf("UPDATE %s SET value = 6", table), "COMMIT"); ok || !strings.Contains(printed, "stale token 6") {
		t.Errorf("a stale write with marks of its own: %s", printed)
	}
	// Neither is the role's own function with the name of a system function.
	execute(t, pool, fmt.Sprintf(`CREATE SCHEMA %[1]s AUTHORIZATION %[1]s;
		CREATE FUNCTION %[1]s.current_setting(name text, missing boolean) RETURNS text LANGUAGE sql
			AS $$ SELECT CASE name WHEN 'lockstep.token' THEN '9' ELSE pg_catalog.current_setting(name, missing) END $$`, role), pgx.QueryExecModeSimpleProtocol)
	path := fmt.Sprintf("SET search_path = %s, pg_catalog, public", role)
	if printed, ok := typed(t, s.URL(), as, path, said(6), fmt.Sprintf("UPDATE %s SET value = 6", table), "COMMIT"); ok || !strings.Contains(printed, "stale token 6") {
		t.Errorf("a stale write with functions of its own: %s", printed)
	}
}

// A writer with an open transaction keeps the next holder from entering, even if the mark did not
// change.
func TestTheTriggerLocksTheMark(t *testing.T) {
	s, _ := sharedServers(t)
	pool, ctx, name := openPool(t, s.URL()), within(t), fresh(t)
	table := protected(t, pool, name)
	guard := newGuard(t, pgfence.Config{})
	for _, mark := range []string{"new", "raised before"} {
		writer := begin(t, pool, pgx.TxOptions{})
		execute(t, writer, said(7)[len("BEGIN;"):], pgx.QueryExecModeSimpleProtocol)
		execute(t, writer, fmt.Sprintf("UPDATE %s SET id = id", table))
		next := begin(t, pool, pgx.TxOptions{})
		execute(t, next, "SET LOCAL lock_timeout = '50ms'")
		if err := guard.Enter(ctx, pgfence.Pgx(next), name, grant(8)); !errors.Is(err, fence.ErrBusy) {
			t.Errorf("mark %s: entering beside a write: %v, want ErrBusy", mark, err)
		}
		must(t, next.Rollback(ctx))
		must(t, writer.Commit(ctx))
	}
}

// A step of a Guard is enough for the trigger. The next holder enters when the transaction has
// ended, not between its writes.
func TestAGuardAndTheTriggerWorkTogether(t *testing.T) {
	s, _ := sharedServers(t)
	pool, ctx, name := openPool(t, s.URL()), within(t), fresh(t)
	table := protected(t, pool, name)
	guard := newGuard(t, pgfence.Config{})
	tx := begin(t, pool, pgx.TxOptions{})
	must(t, guard.Once(ctx, pgfence.Pgx(tx), name, grant(7)))
	execute(t, tx, fmt.Sprintf("INSERT INTO %s VALUES (1, 1)", table))
	next := make(chan error)
	go func() {
		next <- guard.Marks(pool).Admit(ctx, name, grant(8), fence.Enter)
	}()
	execute(t, tx, fmt.Sprintf("UPDATE %s SET value = 2", table))
	must(t, tx.Commit(ctx))
	must(t, <-next)
	m, err := guard.Marks(pool).Mark(ctx, name)
	if want := (fence.Mark{Backend: "memory:test", Lock: "reports", Token: 8, Written: 7}); err != nil || m != want {
		t.Errorf("the mark is %+v, %v, want %+v", m, err, want)
	}
}
