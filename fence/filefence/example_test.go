//go:build unix

package filefence_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fence/filefence"
	"github.com/lockstep-dev/lockstep/memlock"
)

// Two processes count in a file under a lock. A reads, freezes beyond its lease, and
// wakes when B has taken over. Its late write is refused, and no count is lost.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	space := memlock.NewSpace() // stands in for the lock service
	a, b := space.Locker(), space.Locker()
	source, err := fence.For(a, "prod", "reports/total")
	if err != nil {
		log.Fatal(err)
	}
	file, err := filefence.Open(filepath.Join(dir, "total"), filefence.Config{})
	if err != nil {
		log.Fatal(err)
	}

	lockA, _ := a.Acquire(ctx, "reports/total")
	grantA := source.Grant(lockA.Token())
	fmt.Println("A:", file.Write(ctx, grantA, []byte("1")))
	a.Expire() // A freezes after reading 1

	lockB, _ := b.Acquire(ctx, "reports/total")
	grantB := source.Grant(lockB.Token())
	fmt.Println("B enters:", file.Enter(ctx, grantB)) // before it reads
	total, _ := file.Read(ctx)
	fmt.Printf("B reads: %s\n", total)

	err = file.Write(ctx, grantA, []byte("2")) // A wakes
	fmt.Println("A is stale:", errors.Is(err, fence.ErrStale))
	fmt.Println("B:", file.Write(ctx, grantB, []byte("2")))
	total, _ = os.ReadFile(filepath.Join(dir, "total")) // as any program reads it
	fmt.Printf("total: %s\n", total)
	// Output:
	// A: <nil>
	// B enters: <nil>
	// B reads: 1
	// A is stale: true
	// B: <nil>
	// total: 2
}

// Work that is done once per grant: the retry after a lost reply learns that it is done.
func ExampleFile_WriteOnce() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file, err := filefence.Open(filepath.Join(dir, "invoice"), filefence.Config{})
	if err != nil {
		log.Fatal(err)
	}
	grant := fence.Grant{Backend: "native:prod", Lock: "billing", Token: 7}

	fmt.Println(file.WriteOnce(ctx, grant, []byte("4711")))
	fmt.Println(errors.Is(file.WriteOnce(ctx, grant, []byte("4712")), fence.ErrAlready))
	// Output:
	// <nil>
	// true
}

// A Dir keeps the marks of resources that are not files. After reopening, as after a restart, it
// still knows them.
func ExampleDir() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	guard, err := filefence.OpenDir(dir, filefence.Config{})
	if err != nil {
		log.Fatal(err)
	}
	grant := fence.Grant{Backend: "native:prod", Lock: "printer", Token: 8}
	fmt.Println(guard.Admit(ctx, "printer/3rd-floor", grant, fence.Write))

	guard, err = filefence.OpenDir(dir, filefence.Config{})
	if err != nil {
		log.Fatal(err)
	}
	grant.Token = 7
	fmt.Println(errors.Is(guard.Admit(ctx, "printer/3rd-floor", grant, fence.Write), fence.ErrStale))
	// Output:
	// <nil>
	// true
}
