package s3fence_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstep-dev/lockstep/adapter/s3/s3fence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/s3server"
	"github.com/lockstep-dev/lockstep/memlock"
)

// A reads a report and freezes beyond its lease. B takes over and writes the next one. A's late
// write is refused.
func Example() {
	err := withBucket(func(ctx context.Context, cli *s3.Client, bucket string) error {
		space := memlock.NewSpace() // stands in for the lock service
		a, b := space.Locker(), space.Locker()
		source, err := fence.For(a, "prod", "billing/report")
		if err != nil {
			return err
		}
		guard, err := s3fence.Open(ctx, cli, bucket, s3fence.Config{}) // refuses a store that does not honour conditions
		if err != nil {
			return err
		}

		lockA, err := a.Acquire(ctx, "billing/report")
		if err != nil {
			return err
		}
		grantA := source.Grant(lockA.Token())
		fmt.Println("A:", guard.Write(ctx, "report", grantA, []byte("1")))
		a.Expire() // A freezes after reading 1

		lockB, err := b.Acquire(ctx, "billing/report")
		if err != nil {
			return err
		}
		grantB := source.Grant(lockB.Token())
		fmt.Println("B enters:", guard.Enter(ctx, "report", grantB)) // before it reads
		report, err := guard.Read(ctx, "report")
		fmt.Printf("B reads: %s %v\n", report, err)

		err = guard.Write(ctx, "report", grantA, []byte("2")) // A wakes
		fmt.Println("A is stale:", errors.Is(err, fence.ErrStale))
		fmt.Println("B:", guard.Write(ctx, "report", grantB, []byte("2")))
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// A: <nil>
	// B enters: <nil>
	// B reads: 1 <nil>
	// A is stale: true
	// B: <nil>
}

// A large object can be uploaded in any way and then committed.
func ExampleGuard_Commit() {
	err := withBucket(func(ctx context.Context, cli *s3.Client, bucket string) error {
		guard, err := s3fence.Open(ctx, cli, bucket, s3fence.Config{})
		if err != nil {
			return err
		}
		grant := fence.Grant{Backend: "native:prod", Lock: "videos", Token: 7}
		key := guard.NewKey("videos/intro", grant)
		if err := upload(ctx, cli, bucket, key); err != nil {
			return err
		}
		fmt.Println("commit:", guard.Commit(ctx, "videos/intro", grant, fence.WriteOnce, key))
		err = guard.Commit(ctx, "videos/intro", grant, fence.WriteOnce, key)
		fmt.Println("the retry is told that all is done:", errors.Is(err, fence.ErrAlready))
		present, err := guard.Key(ctx, "videos/intro")
		fmt.Println("readers find it:", present == key, err)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// commit: <nil>
	// the retry is told that all is done: true
	// readers find it: true <nil>
}

// upload stands in for a multipart upload.
func upload(ctx context.Context, cli *s3.Client, bucket, key string) error {
	_, err := cli.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key})
	return err
}

// withBucket calls f with a bucket that stands in for yours.
func withBucket(f func(ctx context.Context, cli *s3.Client, bucket string) error) error {
	dir, err := os.MkdirTemp("", "s3fence-example-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := s3server.Start(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(context.Background(), clientOf(s.Endpoint()), s3server.Bucket)
}
