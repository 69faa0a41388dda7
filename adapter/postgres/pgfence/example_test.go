package pgfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep/adapter/postgres/pgfence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/memlock"
)

// databaseURL is the URL of the tests' server.
func databaseURL() string {
	shared.once.Do(shared.start)
	if shared.err != nil {
		fmt.Fprintln(os.Stderr, shared.err)
		os.Exit(1)
	}
	return shared.server.URL()
}

// Two processes count in a table under a lock. A reads, freezes beyond its lease, and wakes when B
// has taken over. Its late write is refused, and no count is lost.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, databaseURL())
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pgfence.Migrate(ctx, pool, ""); err != nil { // once, or as part of the program's migrations
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE totals AS SELECT 1 AS total"); err != nil {
		log.Fatal(err)
	}
	guard, err := pgfence.New(pgfence.Config{})
	if err != nil {
		log.Fatal(err)
	}
	space := memlock.NewSpace() // stands in for the lock service
	a, b := space.Locker(), space.Locker()
	source, err := fence.For(a, "prod", "totals")
	if err != nil {
		log.Fatal(err)
	}
	// read enters before it reads, in the transaction of the read.
	read := func(g fence.Grant) (total int, err error) {
		return total, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := guard.Enter(ctx, pgfence.Pgx(tx), "totals", g); err != nil {
				return err
			}
			return tx.QueryRow(ctx, "SELECT total FROM totals").Scan(&total)
		})
	}
	write := func(g fence.Grant, total int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := guard.Write(ctx, pgfence.Pgx(tx), "totals", g); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE totals SET total = $1", total)
			return err
		})
	}

	lockA, _ := a.Acquire(ctx, "totals")
	grantA := source.Grant(lockA.Token())
	seenByA, err := read(grantA)
	fmt.Println("A reads:", seenByA, err)
	a.Expire() // A freezes

	lockB, _ := b.Acquire(ctx, "totals")
	grantB := source.Grant(lockB.Token())
	seenByB, err := read(grantB)
	fmt.Println("B reads:", seenByB, err)
	err = write(grantA, seenByA+1) // A wakes
	fmt.Println("A is stale:", errors.Is(err, fence.ErrStale))
	fmt.Println("B writes:", write(grantB, seenByB+1))
	// Output:
	// A reads: 1 <nil>
	// B reads: 1 <nil>
	// A is stale: true
	// B writes: <nil>
}

// With database/sql. Work that is done once per grant: the retry after a lost reply learns that it
// is done.
func ExampleGuard_Once() {
	ctx := context.Background()
	db, err := sql.Open("pgx", databaseURL()) // using the driver github.com/jackc/pgx/v5/stdlib
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE payments (amount int)"); err != nil {
		log.Fatal(err)
	}
	guard, err := pgfence.New(pgfence.Config{})
	if err != nil {
		log.Fatal(err)
	}
	pay := func(g fence.Grant) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := guard.Once(ctx, pgfence.SQL(tx), "payments", g); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO payments VALUES (100)"); err != nil {
			return err
		}
		return tx.Commit()
	}
	grant := fence.Grant{Backend: "native:prod", Lock: "billing", Token: 7}

	fmt.Println(pay(grant))
	fmt.Println(errors.Is(pay(grant), fence.ErrAlready))
	// Output:
	// <nil>
	// true
}

// A trigger lets only the holder of the lock write, in whatever language.
func ExampleProtect() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, databaseURL())
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE TABLE invoices (id int)"); err != nil {
		log.Fatal(err)
	}
	if err := pgfence.Protect(ctx, pool, "", "invoices", "invoices"); err != nil {
		log.Fatal(err)
	}
	say := func(token int, statement string) error {
		_, err := pool.Exec(ctx, fmt.Sprintf(`BEGIN;
			SET LOCAL lockstep.backend = 'native:prod';
			SET LOCAL lockstep.lock = 'billing';
			SET LOCAL lockstep.token = '%d';
			%s;
			COMMIT`, token, statement), pgx.QueryExecModeSimpleProtocol)
		return err
	}

	fmt.Println(say(8, "INSERT INTO invoices VALUES (1)"))
	fmt.Println(say(7, "DELETE FROM invoices"))
	_, err = pool.Exec(ctx, "DELETE FROM invoices")
	fmt.Println(err)
	// Output:
	// <nil>
	// ERROR: lockstep: stale token 7 of lock billing: invoices has seen 8 (SQLSTATE LKS01)
	// ERROR: lockstep: no fencing token: table invoices is written only by the holder of a lock (SQLSTATE LKS03)
}
