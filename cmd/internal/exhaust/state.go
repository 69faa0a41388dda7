package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

const (
	// holdFor is the TTL of the sessions, longer than any case takes.
	holdFor = 5 * time.Minute
	// claimsOfSession is below the limit on the claims of one session.
	claimsOfSession = 4_000
	namesOfClaim    = 16
)

func (o *options) client(target string) (pb.LockServiceClient, pb.AdminServiceClient, error) {
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return o.dial(ctx, address) }))
	if err != nil {
		return nil, nil, err
	}
	return pb.NewLockServiceClient(conn), pb.NewAdminServiceClient(conn), nil
}

// taken is what a command has opened, and the error that stopped it.
type taken struct {
	number atomic.Int64
	mu     struct {
		sync.Mutex
		refusal  error
		sessions []*pb.OpenSessionResponse
	}
}

func (t *taken) refused(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.refusal = err
}

func (t *taken) open(ctx context.Context, api pb.LockServiceClient) (*pb.OpenSessionResponse, error) {
	s, err := api.OpenSession(ctx, &pb.OpenSessionRequest{TtlMs: uint64(holdFor.Milliseconds())})
	if err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.mu.sessions = append(t.mu.sessions, s)
	}
	return s, err
}

// until runs step in many goroutines until each has been refused, or step has succeeded number
// times.
func (t *taken) until(ctx context.Context, number int, step func(worker int) error) {
	var all sync.WaitGroup
	for worker := range atOnce {
		all.Go(func() {
			for ctx.Err() == nil && t.number.Load() < int64(number) {
				if err := step(worker); err != nil {
					if protocol.FromErr(err).GetReason() == pb.Reason_REASON_OVERLOADED {
						time.Sleep(10 * time.Millisecond)
						continue
					}
					t.refused(err)
					return
				}
				t.number.Add(1)
			}
		})
	}
	all.Wait()
}

// keepTrying repeats step while other clients are measured, until ctx is done. Then it closes all
// sessions.
func (t *taken) keepTrying(ctx context.Context, api pb.LockServiceClient, step func(worker int) error) error {
	t.mu.Lock()
	fmt.Println("refusal", t.mu.refusal)
	t.mu.Unlock()
	fmt.Println("ready", t.number.Load())
	for ctx.Err() == nil {
		_ = step(0) // refused, since the limit was reached
		time.Sleep(10 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	next := make(chan *pb.OpenSessionResponse)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for s := range next {
				_, _ = api.CloseSession(ctx, &pb.CloseSessionRequest{Session: s.GetSession(), Secret: s.GetSecret()})
			}
		})
	}
	for _, s := range t.mu.sessions {
		next <- s
	}
	close(next)
	all.Wait()
	return nil
}

// sessions opens sessions until no more are allowed.
func sessions(ctx context.Context, o *options, target string) error {
	api, _, err := o.client(target)
	if err != nil {
		return err
	}
	var t taken
	step := func(int) error {
		_, err := t.open(ctx, api)
		return err
	}
	t.until(ctx, o.number, step)
	return t.keepTrying(ctx, api, step)
}

// claims takes locks, each with about o.bytes of names, until no more are allowed.
func claims(ctx context.Context, o *options, target string) error {
	api, _, err := o.client(target)
	if err != nil {
		return err
	}
	var t taken
	var own [atOnce]struct {
		session *pb.OpenSessionResponse
		claims  int
	}
	var serial atomic.Int64
	step := func(worker int) error {
		w := &own[worker]
		if w.session == nil || w.claims == o.perSession() {
			session, err := t.open(ctx, api)
			if err != nil {
				return err
			}
			w.session, w.claims = session, 0
		}
		w.claims++
		_, err := api.Acquire(ctx, &pb.AcquireRequest{Session: w.session.GetSession(), Secret: w.session.GetSecret(),
			Spec: &pb.ClaimSpec{Names: o.names(serial.Add(1))}})
		return err
	}
	t.until(ctx, o.number, step)
	return t.keepTrying(ctx, api, step)
}

func (o *options) perSession() int {
	if o.bytes > 0 {
		return claimsOfSession / namesOfClaim
	}
	return claimsOfSession
}

// names returns the names of a claim: one short name or, if o.bytes is set, 16 that add up to it.
func (o *options) names(serial int64) []string {
	if o.bytes == 0 {
		return []string{fmt.Sprintf("exhaust/claims/%d", serial)}
	}
	names := make([]string, namesOfClaim)
	for i := range names {
		names[i] = fmt.Sprintf("exhaust/bytes/%d/%d/", serial, i)
		names[i] += strings.Repeat("n", max(0, o.bytes/namesOfClaim-len(names[i])))
	}
	return names
}

// streams opens gRPC watches until no more are allowed, 16 on each connection.
func streams(ctx context.Context, o *options, target string) error {
	opened := 0
	var refusal error
	for opened < o.number && refusal == nil {
		api, _, err := o.client(target)
		if err != nil {
			return err
		}
		for range 16 {
			if refusal = watch(ctx, api); refusal != nil {
				break
			}
			opened++
		}
	}
	fmt.Println("refusal", refusal)
	return ready(ctx, opened)
}

func watch(ctx context.Context, api pb.LockServiceClient) error {
	w, err := api.Watch(ctx, &pb.WatchRequest{Prefix: "nobody/"})
	if err != nil {
		return err
	}
	_, err = w.Recv() // the first message says where the watch begins
	return err
}

// backups requests o.number backups at once and reads none of them.
func backups(ctx context.Context, o *options, target string) error {
	opened := each(o.number, func() bool {
		c, err := o.dial(ctx, target)
		if err != nil {
			return false
		}
		f, err := preface(c)
		if err != nil {
			return false
		}
		if err := call(f, 1, pb.AdminService_SnapshotSave_FullMethodName, ""); err != nil {
			return false
		}
		return f.WriteData(1, true, make([]byte, 5)) == nil
	})
	return ready(ctx, opened)
}
