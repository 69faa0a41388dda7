package pglock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A backend runs the statements.
type backend struct {
	pool       *pgxpool.Pool
	cfg        Config
	statements statements
	mode       pgx.QueryExecMode
	patience   string        // how long a statement waits for the lock of the row, as PostgreSQL writes it
	slots      chan struct{} // one for each Take in progress
	flights    flights
	waiters    waiters
	listener   *listener
	id         string // distinguishes this Locker's notifications from others'
	isClosed   atomic.Bool
}

func newBackend(pool *pgxpool.Pool, c Config, quotedTable string) *backend {
	b := &backend{
		pool: pool, cfg: c, statements: newStatements(quotedTable), mode: pgx.QueryExecModeExec,
		patience: strconv.FormatInt((c.TTL/4).Milliseconds(), 10) + "ms",
		// Many waiters must not take all connections away from renewals and releases.
		slots: make(chan struct{}, max(1, pool.Config().MaxConns/2)),
		id:    strconv.FormatUint(rand.Uint64(), 16),
	}
	if pool.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		b.mode = pgx.QueryExecModeSimpleProtocol // some poolers support nothing else
	}
	b.listener = newListener(pool, channelOf(quotedTable), c, b.heard, b.waiters.wakeAll)
	return b
}

var (
	_ locker.Renewer = (*backend)(nil)
	_ locker.Waker   = (*backend)(nil)
)

// ownerOf is the public identity of a claim. The claim's ID cannot be derived from it.
func ownerOf(c *locker.Claim) string {
	sum := sha256.Sum256([]byte(c.ID))
	return hex.EncodeToString(sum[:16])
}

// ask runs a statement that returns one row, in its own transaction. Its error is pgx.ErrNoRows or
// says what is known about the outcome.
func (b *backend) ask(ctx context.Context, statement string, args []any, results ...any) error {
	conn, err := b.pool.Acquire(ctx)
	if err == nil {
		defer conn.Release()
		err = ctx.Err()
	}
	if err != nil { // nothing was sent
		return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, err)
	}
	ctx, cancel := lingering(ctx)
	defer cancel()
	err = conn.QueryRow(ctx, statement, append([]any{b.mode}, args...)...).Scan(results...)
	if err == nil || errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return outcome(err)
}

// linger is how much longer than its caller a statement may take. Giving up on a statement costs
// its connection and leaves its outcome unknown; usually the answer is about to arrive.
const linger = 250 * time.Millisecond

// lingering returns a context that ends a little after ctx.
func lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(linger)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-own.Done():
		}
	})
	return own, func() { stop(); cancel() }
}

// Take implements [locker.Backend].
func (b *backend) Take(ctx context.Context, c *locker.Claim) (locker.Grant, error) {
	if c.Try() {
		return b.take(ctx, c)
	}
	for {
		g, again, err := b.join(ctx, c)
		if !again || ctx.Err() != nil {
			return g, err
		}
	}
}

// join asks the server, or learns from the claim that is asking. It must be repeated after a
// release or the end of the claim that asked, so this does not go on forever.
func (b *backend) join(ctx context.Context, c *locker.Claim) (g locker.Grant, again bool, err error) {
	key := keyOf(c.Names[0])
	flight, first := b.flights.join(key)
	if !first {
		again, err = flight.follow(ctx)
		return g, again, err
	}
	g, err = b.take(ctx, c)
	if ctx.Err() != nil {
		b.flights.age(key)
	}
	b.flights.land(key, flight, err)
	return g, flight.isOutdated(err), err
}

func (b *backend) take(ctx context.Context, c *locker.Claim) (locker.Grant, error) {
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	case <-ctx.Done():
		return locker.Grant{}, fmt.Errorf("%w: no connection was free: %w", lockstep.ErrUnavailable, ctx.Err())
	}
	var granted bool
	var r record
	args := []any{b.patience, c.Names[0], ownerOf(c), b.cfg.TTL.Microseconds(), encode(c.Metadata), b.awaits(c).Microseconds()}
	err := b.askAgain(ctx, b.statements.take, args, append([]any{&granted}, r.results()...)...)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return locker.Grant{}, &lockstep.BusyError{}
	case err != nil:
		return locker.Grant{}, err
	case !granted && r.owner != ownerOf(c): // otherwise an earlier sending of the statement took it
		return locker.Grant{}, &lockstep.BusyError{Holders: []lockstep.Claim{r.claim()}}
	}
	return locker.Grant{Token: lockstep.Token(r.token), Owner: r.owner}, nil
}

// maxSendings bounds how often a statement is sent if its answers are lost. After a server restart
// each idle connection in the pool costs one.
const maxSendings = 5

// askAgain is ask, but retries on another connection if the answer was lost. For take that is safe:
// if it took effect before, it finds its own owner in the row.
func (b *backend) askAgain(ctx context.Context, statement string, args []any, results ...any) (err error) {
	for range maxSendings {
		err = b.ask(ctx, statement, args, results...)
		if !errors.Is(err, lockstep.ErrUncertain) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// awaited is how long releases send notifications after a waiter has asked for them. It exceeds any
// wait between two looks by enough for a waiter to renew the request in its second half.
const awaited = 3 * maxPollEvery

// awaits is how long the claim wants to be notified of the release if it is not granted now.
func (b *backend) awaits(c *locker.Claim) time.Duration {
	if c.Try() || b.cfg.Wake == WakeByPolling || b.listener.isTurnedOff() {
		return 0
	}
	return awaited
}

// Renew implements [locker.Renewer].
func (b *backend) Renew(ctx context.Context, c *locker.Claim) error {
	return b.change(ctx, b.statements.renew, b.patience, c.Names[0], ownerOf(c), c.TTL.Microseconds())
}

// Drop implements [locker.Backend].
func (b *backend) Drop(ctx context.Context, c *locker.Claim) error {
	key := keyOf(c.Names[0])
	err := b.change(ctx, b.statements.drop, b.patience, c.Names[0], ownerOf(c), b.listener.channel, key+" "+b.id)
	if err == nil {
		b.wake(key)
	}
	return err
}

// change runs a statement that changes the row of a claim. If no row is returned, the claim is
// lost.
func (b *backend) change(ctx context.Context, statement string, args ...any) error {
	var changed bool
	err := b.ask(ctx, statement, args, &changed)
	if errors.Is(err, pgx.ErrNoRows) {
		return &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: "the row is not ours or its lease has ended"}
	}
	return err
}

// Close implements [locker.Backend].
func (b *backend) Close(context.Context) error {
	b.isClosed.Store(true)
	b.listener.close()
	return nil
}

// encode encodes metadata, which is valid UTF-8, as JSON.
func encode(labels map[string]string) string {
	if len(labels) == 0 {
		return "{}"
	}
	text, err := json.Marshal(labels)
	if err != nil {
		panic(fmt.Sprintf("pglock: metadata %q: %v", labels, err)) // strings can always be encoded
	}
	return string(text)
}
