package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// StartStandby copies a running server and starts the copy, which follows it until Promote. The
// primary's commits wait for it from then on, so that it has everything that was acknowledged. The
// caller must close it.
func StartStandby(primary *Server) (*Server, error) {
	s, err := prepare()
	if err != nil {
		return nil, fmt.Errorf("start a standby: %w", err)
	}
	if err := s.follow(primary); err != nil {
		s.Close()
		return nil, fmt.Errorf("start a standby: %w", err)
	}
	return s, nil
}

func (s *Server) follow(primary *Server) error {
	program, err := find("pg_basebackup", "postgresql")
	if err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(primary.address)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	err = testbed.Run(ctx, testbed.Command{
		Path: program, Dir: s.dir, User: s.owner,
		Args: []string{"-D", s.data(), "-h", host, "-p", port, "-U", "postgres", "--checkpoint=fast", "--write-recovery-conf", "--no-sync"},
	})
	if err != nil {
		return err
	}
	if err := s.serve(Config{}); err != nil {
		return err
	}
	return primary.awaitStandby(ctx)
}

// awaitStandby makes commits wait for a standby, and returns when one is connected.
func (s *Server) awaitStandby(ctx context.Context) error {
	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		if _, err := s.run(ctx, statement); err != nil {
			return err
		}
	}
	for {
		found, err := s.run(ctx, "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
		if err != nil || found {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Promote makes a standby a primary, and returns when it accepts writes.
func (s *Server) Promote() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	promoted, err := s.run(ctx, "SELECT 1 WHERE pg_promote(true, 30)")
	if err == nil && !promoted {
		err = errors.New("it has not become a primary within 30 s")
	}
	if err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	return nil
}

// run runs a statement on its own connection, and reports whether it returned a row.
func (s *Server) run(ctx context.Context, statement string) (found bool, err error) {
	rows, err := query(ctx, s.URL(), statement)
	return rows != "", err
}
