package pglock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-dev/lockstep/internal/testbed/pgserver"
)

// run runs one statement on its own connection and returns the resulting number.
func run(t *testing.T, url, sql string) (n int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	return n, conn.QueryRow(ctx, sql, pgx.QueryExecModeSimpleProtocol).Scan(&n)
}

func must(t *testing.T, url, sql string, want int) {
	t.Helper()
	if n, err := run(t, url, sql); err != nil || n != want {
		t.Errorf("%s: %d, %v, want %d", sql, n, err, want)
	}
}

func TestAServerKeepsWhatItAcknowledgedHoweverItEnds(t *testing.T) {
	s, err := pgserver.Start(pgserver.Config{Settings: map[string]string{"max_connections": "33"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := pgserver.StartBouncer(s)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	must(t, s.URL(), "SELECT current_setting('max_connections')::int", 33)
	if _, err := run(t, s.URL(), "CREATE TABLE numbers AS SELECT 0 AS n"); !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	for i, end := range []func() error{
		func() error { s.Kill(); return nil },
		func() error { return s.Stop(pgserver.Fast) },
		func() error { return s.Stop(pgserver.Immediate) },
	} {
		must(t, s.URL(), "UPDATE numbers SET n = n + 1 RETURNING n", i+1)
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if _, err := run(t, s.URL(), "SELECT 1"); err == nil {
			t.Error("a server that was ended serves")
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		must(t, s.URL(), "SELECT n FROM numbers", i+1)
	}
	b.Kill()
	if _, err := run(t, b.URL(), "SELECT 1"); err == nil {
		t.Error("a pgbouncer that was killed serves")
	}
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	must(t, b.URL(), "SELECT n FROM numbers", 3)
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	s, err := pgserver.Start(pgserver.Config{Settings: map[string]string{"shared_buffers": "no size"}})
	if err == nil {
		s.Close()
		t.Fatal("a server started with a wrong setting")
	}
	if !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers"`) {
		t.Errorf("err = %v, want what the server printed", err)
	}
}

func TestACloseLeavesNothing(t *testing.T) {
	s, err := pgserver.Start(pgserver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var data string
	if err := conn.QueryRow(ctx, "SHOW data_directory").Scan(&data); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(data)); !os.IsNotExist(err) {
		t.Errorf("the directory of the server: %v, want it to be gone", err)
	}
	if _, err := run(t, s.URL(), "SELECT 1"); err == nil {
		t.Error("a server that was closed serves")
	}
}
