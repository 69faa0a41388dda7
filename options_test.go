package lockstep_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
)

var everything = lockstep.Capabilities{Backend: "test", Shared: true, Permits: true, Multi: true, LockDelay: true}

func TestOptionsAddUp(t *testing.T) {
	got, err := lockstep.ResolveAcquire(everything, "db/a",
		lockstep.WithWait(time.Minute),
		lockstep.WithAlso("db/b"), lockstep.WithAlso("db/c"),
		lockstep.WithLockDelay(time.Second),
		lockstep.WithMaxHold(time.Hour),
		lockstep.WithMetadata(map[string]string{"host": "h1", "pid": "1"}),
		lockstep.WithMetadata(map[string]string{"pid": "2"}),
	)
	want := lockstep.AcquireConfig{
		Names: []string{"db/a", "db/b", "db/c"},
		Wait:  time.Minute, HasWait: true,
		LockDelay: time.Second,
		MaxHold:   time.Hour,
		Metadata:  map[string]string{"host": "h1", "pid": "2"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestDefaultsAreAnExclusiveClaimThatWaits(t *testing.T) {
	got, err := lockstep.ResolveAcquire(lockstep.Capabilities{}, "a")
	if want := (lockstep.AcquireConfig{Names: []string{"a"}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got.Try() {
		t.Error("the default is a try")
	}
}

func TestWaitOfZeroIsATry(t *testing.T) {
	got, err := lockstep.ResolveAcquire(lockstep.Capabilities{}, "a", lockstep.WithWait(0))
	if err != nil || !got.Try() {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestOptionsCopyWhatTheyAreGiven(t *testing.T) {
	names, labels := []string{"db/b"}, map[string]string{"k": "v"}
	also, metadata := lockstep.WithAlso(names...), lockstep.WithMetadata(labels)
	names[0], labels["k"] = "db/changed", "changed"
	got, err := lockstep.ResolveAcquire(everything, "db/a", also, metadata)
	if err != nil || got.Names[1] != "db/b" || got.Metadata["k"] != "v" {
		t.Errorf("got %+v, %v", got, err)
	}
	got.Metadata["k"] = "changed"
	again, _ := lockstep.ResolveAcquire(everything, "db/a", also, metadata)
	if again.Metadata["k"] != "v" {
		t.Error("two claims share their metadata")
	}
}

func TestBadOptionsAreInvalid(t *testing.T) {
	many := func(n int) lockstep.AcquireOption {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("db/%d", i))
		}
		return lockstep.WithAlso(names...)
	}
	for _, test := range []struct {
		what  string
		field string // of the error; empty if there is none
		opts  []lockstep.AcquireOption
	}{
		{"a negative wait", "wait", []lockstep.AcquireOption{lockstep.WithWait(-1)}},
		{"the longest wait", "", []lockstep.AcquireOption{lockstep.WithWait(lockstep.MaxWait)}},
		{"a longer wait", "wait", []lockstep.AcquireOption{lockstep.WithWait(lockstep.MaxWait + 1)}},
		{"a negative lock delay", "lock delay", []lockstep.AcquireOption{lockstep.WithLockDelay(-1)}},
		{"the longest lock delay", "", []lockstep.AcquireOption{lockstep.WithLockDelay(lockstep.MaxLockDelay)}},
		{"a longer lock delay", "lock delay", []lockstep.AcquireOption{lockstep.WithLockDelay(lockstep.MaxLockDelay + 1)}},
		{"a negative hold", "max hold", []lockstep.AcquireOption{lockstep.WithMaxHold(-1)}},
		{"the shortest hold", "", []lockstep.AcquireOption{lockstep.WithMaxHold(time.Second)}},
		{"a shorter hold", "max hold", []lockstep.AcquireOption{lockstep.WithMaxHold(time.Second - 1)}},
		{"no permits", "permits", []lockstep.AcquireOption{lockstep.WithPermits(0, 3)}},
		{"all permits", "", []lockstep.AcquireOption{lockstep.WithPermits(3, 3)}},
		{"more permits than there are", "permits", []lockstep.AcquireOption{lockstep.WithPermits(4, 3)}},
		{"negative permits", "permits", []lockstep.AcquireOption{lockstep.WithPermits(-1, -1)}},
		{"the largest semaphore", "", []lockstep.AcquireOption{lockstep.WithPermits(1, 1<<20)}},
		{"a larger semaphore", "permits", []lockstep.AcquireOption{lockstep.WithPermits(1, 1<<20+1)}},
		{"16 names", "", []lockstep.AcquireOption{many(15)}},
		{"17 names", "names", []lockstep.AcquireOption{many(16)}},
		{"the name twice", "names", []lockstep.AcquireOption{lockstep.WithAlso("db/a")}},
		{"another name twice", "names", []lockstep.AcquireOption{lockstep.WithAlso("db/b", "db/b")}},
		{"another namespace", "names", []lockstep.AcquireOption{lockstep.WithAlso("dbx/b")}},
		{"a bad second name", "name", []lockstep.AcquireOption{lockstep.WithAlso("db//b")}},
		{"shared names", "names", []lockstep.AcquireOption{lockstep.WithAlso("db/b"), lockstep.WithShared()}},
		{"permits of several names", "names", []lockstep.AcquireOption{lockstep.WithAlso("db/b"), lockstep.WithPermits(1, 2)}},
		{"an empty key", "metadata", []lockstep.AcquireOption{lockstep.WithMetadata(map[string]string{"": "v"})}},
	} {
		t.Run(test.what, func(t *testing.T) {
			_, err := lockstep.ResolveAcquire(everything, "db/a", test.opts...)
			if test.field != "" {
				wantInvalid(t, err, test.field)
			} else if err != nil {
				t.Errorf("err = %v", err)
			}
		})
	}
}

func TestUnsupportedOptionsAreRefused(t *testing.T) {
	for what, opt := range map[string]lockstep.AcquireOption{
		"shared claims": lockstep.WithShared(),
		"permits":       lockstep.WithPermits(1, 2),
		"several names": lockstep.WithAlso("db/b"),
		"lock delay":    lockstep.WithLockDelay(time.Second),
	} {
		t.Run(what, func(t *testing.T) {
			_, err := lockstep.ResolveAcquire(lockstep.Capabilities{Backend: "small"}, "db/a", opt)
			if want := "lockstep: not supported by this backend: small has no " + what; err == nil || err.Error() != want {
				t.Errorf("err = %v, want %q", err, want)
			}
			if !errors.Is(err, lockstep.ErrUnsupported) || !lockstep.SafeToRetry(err) {
				t.Errorf("err = %v, want ErrUnsupported", err)
			}
			if _, err := lockstep.ResolveAcquire(everything, "db/a", opt); err != nil {
				t.Errorf("a backend that can: %v", err)
			}
		})
	}
	if _, err := lockstep.ResolveAcquire(lockstep.Capabilities{}, "a", lockstep.WithLockDelay(0)); err != nil {
		t.Errorf("no lock delay: %v", err)
	}
}

func TestWhatIsInvalidIsSaidBeforeWhatIsUnsupported(t *testing.T) {
	_, err := lockstep.ResolveAcquire(lockstep.Capabilities{}, "a", lockstep.WithPermits(0, 0))
	wantInvalid(t, err, "permits")
}

func TestModesHaveNames(t *testing.T) {
	for mode, want := range map[lockstep.Mode]string{
		lockstep.Exclusive: "exclusive", lockstep.Shared: "shared", lockstep.Permits: "permits", 99: "unknown",
	} {
		if got := mode.String(); got != want {
			t.Errorf("mode %d is %q, want %q", mode, got, want)
		}
	}
}
