package pglock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep/lease"
)

const (
	// idleAfter is how long the listener stays after the last waiter has left.
	idleAfter = 10 * time.Second
	// checkEvery is how often the listener's connection is checked: a connection that is cut off
	// looks like silence.
	checkEvery = 5 * time.Second
	// answerWithin bounds everything else that the listener sends.
	answerWithin = 5 * time.Second
)

// channelOf is the channel on which the users of a table announce releases.
func channelOf(quotedTable string) string {
	sum := sha256.Sum256([]byte(quotedTable))
	return "lockstep_" + hex.EncodeToString(sum[:8])
}

// A listener has its own connection while there are waiters, and learns of releases there. Polling
// finds what it misses. It is safe for concurrent use.
type listener struct {
	pool    *pgxpool.Pool
	channel string
	wake    Wake
	heard   func(payload string)
	missed  func() // called when releases may have been missed
	log     *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu struct {
		sync.Mutex
		waiting   int
		idleSince time.Time // when waiting became 0
		isRunning bool
		isOff     bool // for good: closed, or behind a pooler
	}
}

func newListener(pool *pgxpool.Pool, channel string, c Config, heard func(string), missed func()) *listener {
	l := &listener{pool: pool, channel: channel, wake: c.Wake, heard: heard, missed: missed, log: c.Logger}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// join adds a waiter.
func (l *listener) join() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.waiting++
	if !l.mu.isRunning && !l.mu.isOff {
		l.mu.isRunning = true
		l.group.Go(l.run)
	}
}

// leave removes a waiter.
func (l *listener) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.waiting--; l.mu.waiting == 0 {
		l.mu.idleSince = time.Now()
	}
}

// isUseless reports whether to stop, in which case the next join starts a new run.
func (l *listener) isUseless() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.isOff || l.mu.waiting == 0 && time.Since(l.mu.idleSince) >= idleAfter {
		l.mu.isRunning = false
	}
	return !l.mu.isRunning
}

func (l *listener) turnOff() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.isOff = true
}

func (l *listener) isTurnedOff() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.isOff
}

// close ends the listener and waits for it to stop.
func (l *listener) close() {
	l.turnOff()
	l.cancel()
	l.group.Wait()
}

// errPooled means that the connection goes through a pooler.
var errPooled = errors.New("the connections are those of a pooler, which may give each transaction another one")

// run listens as long as there are waiters.
func (l *listener) run() {
	backoff := lease.Backoff{Base: 100 * time.Millisecond, Max: 5 * time.Second}
	for !l.isUseless() {
		err := l.listen(backoff.Reset)
		switch {
		case errors.Is(err, errPooled):
			l.log.Info("waiters poll", "reason", err)
			l.turnOff()
		case err != nil && l.ctx.Err() == nil:
			l.log.Debug("waiters poll for a while", "err", err)
			l.pause(backoff.Next())
		}
	}
}

func (l *listener) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.ctx.Done():
	}
}

// listen opens a connection and receives notifications on it until there are no waiters or an error
// occurs. It calls ready once it is listening.
func (l *listener) listen(ready func()) error {
	conn, err := l.open()
	if err != nil {
		return err
	}
	defer l.end(conn)
	if err := l.subscribe(conn); err != nil {
		return err
	}
	ready()
	l.missed() // releases before this point
	for !l.isUseless() {
		if err := l.hear(conn); err != nil {
			return err
		}
	}
	return nil
}

// open takes a connection out of the pool, so that it no longer counts towards the limit. It is
// created like all connections of the pool.
func (l *listener) open() (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, answerWithin)
	defer cancel()
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a connection to listen: %w", err)
	}
	return conn.Hijack(), nil
}

func (l *listener) end(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn.Close(ctx) // it is useless now
}

// subscribe starts to listen, unless the connection does not go directly to the server: a pooler
// gives clients process ids that it makes up.
func (l *listener) subscribe(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(l.ctx, answerWithin)
	defer cancel()
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return err
	}
	if l.wake == WakeAuto && pid != conn.PgConn().PID() {
		return errPooled
	}
	_, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{l.channel}.Sanitize(), pgx.QueryExecModeSimpleProtocol)
	return err
}

// hear waits for one notification. If none comes, it checks that the server is still there.
func (l *listener) hear(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(l.ctx, checkEvery)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	switch {
	case err == nil:
		l.heard(n.Payload)
		return nil
	case !pgconn.Timeout(err) || l.ctx.Err() != nil:
		return err
	}
	ctx, cancel = context.WithTimeout(l.ctx, answerWithin)
	defer cancel()
	return conn.Ping(ctx)
}
