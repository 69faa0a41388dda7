//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdfence"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pgfence"
	"github.com/lockstep-dev/lockstep/adapter/redis/redisfence"
	"github.com/lockstep-dev/lockstep/adapter/s3/s3fence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fence/filefence"
	"github.com/lockstep-dev/lockstep/internal/testbed/etcdserver"
	"github.com/lockstep-dev/lockstep/internal/testbed/pgserver"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
	"github.com/lockstep-dev/lockstep/internal/testbed/s3server"
)

// A guarded is a resource "invoices" in a running store, written as a program would.
type guarded struct {
	store string // the flags that name it
	admit func(fence.Grant) error
}

// guards start the stores that the fence commands support. Each one ends with its test.
var guards = []struct {
	name  string
	start func(t *testing.T) guarded
}{
	{"file", guardedFile},
	{"dir", guardedDir},
	{"postgres", guardedPostgres},
	{"redis", guardedRedis},
	{"etcd", guardedEtcd},
	{"s3", guardedS3},
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// admitting returns the writer of a guard.
func admitting(t *testing.T, store string, g fence.Guard) guarded {
	return guarded{store, func(grant fence.Grant) error { return g.Admit(t.Context(), "invoices", grant, fence.Write) }}
}

func guardedFile(t *testing.T) guarded {
	dir := t.TempDir()
	f := must(filefence.Open(dir+"/invoices", filefence.Config{}))(t)
	return guarded{"--guard file://" + dir, func(g fence.Grant) error { return f.Write(t.Context(), g, []byte("data")) }}
}

func guardedDir(t *testing.T) guarded {
	dir := t.TempDir()
	return admitting(t, "--guard dir://"+dir, must(filefence.OpenDir(dir, filefence.Config{}))(t))
}

// guardedS3 authenticates to the store as the AWS tools do.
func guardedS3(t *testing.T) guarded {
	s := must(s3server.Start(t.TempDir()))(t)
	t.Cleanup(s.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", s3server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3server.SecretKey)
	cli := s3.New(s3.Options{
		BaseEndpoint: aws.String(s.Endpoint()), UsePathStyle: true, Region: s3server.Region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: s3server.AccessKey, SecretAccessKey: s3server.SecretKey}, nil
		}),
	})
	g := must(s3fence.Open(t.Context(), cli, s3server.Bucket, s3fence.Config{Prefix: "ours"}))(t)
	return admitting(t, "--marks ours --guard s3://"+s3server.Bucket+"?endpoint="+s.Endpoint(), g)
}

// guardedPostgres keeps its marks in a table of its own, which --marks must name.
func guardedPostgres(t *testing.T) guarded {
	s := must(pgserver.Start(pgserver.Config{}))(t)
	t.Cleanup(func() { s.Close() })
	pool := must(pgxpool.New(t.Context(), s.URL()))(t)
	t.Cleanup(pool.Close)
	if err := pgfence.Migrate(t.Context(), pool, "public.our_marks"); err != nil {
		t.Fatal(err)
	}
	g := must(pgfence.New(pgfence.Config{Table: "our_marks"}))(t)
	return admitting(t, "--marks our_marks --guard "+s.URL(), g.Marks(pool))
}

func guardedRedis(t *testing.T) guarded {
	s := must(redisserver.Start(redisserver.Config{Dir: t.TempDir()}))(t)
	t.Cleanup(s.Close)
	rdb := redis.NewClient(&redis.Options{Addr: s.Address(), DB: 3})
	t.Cleanup(func() { rdb.Close() })
	return admitting(t, "--guard redis://"+s.Address()+"/3", must(redisfence.New(rdb, redisfence.Config{}))(t))
}

func guardedEtcd(t *testing.T) guarded {
	c := must(etcdserver.Start(t.TempDir(), 1))(t)
	t.Cleanup(c.Close)
	cli := must(clientv3.New(clientv3.Config{Endpoints: c.Endpoints()}))(t)
	t.Cleanup(func() { cli.Close() })
	store := "--marks ours --guard etcd://" + strings.TrimPrefix(c.Endpoints()[0], "http://")
	return admitting(t, store, must(etcdfence.New(cli, etcdfence.Config{Prefix: "ours"}))(t))
}

func TestAGuardedResourceMovesToAnotherBackend(t *testing.T) {
	for _, g := range guards {
		t.Run(g.name, func(t *testing.T) { testMove(t, g.start(t)) })
	}
}

// command runs one of the fence commands on the resource.
func (g guarded) command(t *testing.T, want int, words string) (stdout, stderr string) {
	t.Helper()
	verb, rest, _ := strings.Cut(words, " ")
	code, stdout, stderr := invoke(nil, strings.Fields("fence "+verb+" invoices "+g.store+" "+rest)...)
	if code != want {
		t.Fatalf("fence %s: exit code %d, want %d: %s", words, code, want, stderr)
	}
	return stdout, stderr
}

func testMove(t *testing.T, g guarded) {
	old := fence.Grant{Backend: "native:old", Lock: "billing", Token: 900}
	moved := fence.Grant{Backend: "etcd:prod", Lock: "billing", Token: 12}

	if out, _ := g.command(t, CodeOK, "show"); out != "invoices: not bound to a lock: no grant was used here yet\n" {
		t.Errorf("before the first grant: %q", out)
	}
	g.command(t, CodeBusy, "reset --to-backend etcd:prod --seen 0")
	if err := g.admit(old); err != nil {
		t.Fatal(err)
	}
	out, _ := g.command(t, CodeOK, "show -o json")
	var mark fenceReport
	if err := json.Unmarshal([]byte(out), &mark); err != nil || mark.markReport != (markReport{"native:old", "billing", 900, 900}) {
		t.Errorf("%v: %s", err, out)
	}

	if _, errs := g.command(t, CodeUsage, "reset --to-backend etcd:prod"); !strings.Contains(errs, "--seen 900") {
		t.Errorf("without --seen: %s", errs)
	}
	g.command(t, CodeBusy, "reset --to-backend etcd:prod --seen 899")
	if _, errs := g.command(t, CodeUsage, "reset --to-lock billing --seen 900"); !strings.Contains(errs, "another lock or backend") {
		t.Errorf("to the same lock: %s", errs)
	}
	if err := g.admit(moved); !errors.Is(err, fence.ErrForeign) {
		t.Fatalf("before the reset the new lock: %v, want ErrForeign", err)
	}

	out, _ = g.command(t, CodeOK, "reset --to-backend etcd:prod --to-token 10 --seen 900")
	want := `invoices
  before: lock billing on native:old, highest token 900, last write with token 900
  now:    lock billing on etcd:prod, highest token 10, nothing written yet
`
	if out != want {
		t.Errorf("reset says\n%s", out)
	}
	if err := g.admit(old); !errors.Is(err, fence.ErrForeign) {
		t.Errorf("after the reset the old lock: %v, want ErrForeign", err)
	}
	if err := g.admit(fence.Grant{Backend: "etcd:prod", Lock: "billing", Token: 9}); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a token below --to-token: %v, want ErrStale", err)
	}
	if err := g.admit(moved); err != nil {
		t.Errorf("after the reset the new lock: %v", err)
	}
	if out, _ := g.command(t, CodeOK, "show"); out != "invoices: lock billing on etcd:prod, highest token 12, last write with token 12\n" {
		t.Errorf("at the end: %q", out)
	}
}

func TestALookAtAResourceThatIsNotThereLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	for _, scheme := range []string{"file", "dir"} {
		if code, _, errs := invoke(nil, "fence", "show", "reprot", "--guard", scheme+"://"+dir); code != CodeOK {
			t.Errorf("exit code %d: %s", code, errs)
		}
	}
	if entries, err := os.ReadDir(dir); len(entries) > 0 || err != nil {
		t.Errorf("left %v, %v", entries, err)
	}
}

func TestAStoreThatIsNotThereIsToldInTime(t *testing.T) {
	for _, url := range []string{"postgres://127.0.0.1:1/app", "redis://127.0.0.1:1", "etcd://127.0.0.1:1"} {
		code, _, errs := invoke(map[string]string{"LOCKSTEP_GUARD": url}, "fence", "show", "x", "--connect-timeout", "0.5")
		if code != CodeUnavailable {
			t.Errorf("%s: exit code %d, want %d: %s", url, code, CodeUnavailable, errs)
		}
		oneLineOf(t, errs)
	}
}

func TestAPostgresWithoutTheTableIsToldSo(t *testing.T) {
	s := must(pgserver.Start(pgserver.Config{}))(t)
	t.Cleanup(func() { s.Close() })
	code, _, errs := invoke(nil, "fence", "show", "x", "--guard", s.URL())
	if code != CodeUsage || !strings.Contains(errs, "pgfence.Migrate") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestTheMarkOfAGuardIsShownWithNothingUnprintable(t *testing.T) {
	m := fence.Mark{Backend: "native:prod", Lock: "a\x1b[2Jb", Token: lockstep.MaxToken}
	if text := describeMark(m); strings.ContainsFunc(text, unprintable) {
		t.Errorf("%q", text)
	}
}
