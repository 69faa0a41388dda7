package cli

import (
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/lockstep-dev/lockstep"
)

// claimFlags are the flags of commands that ask for a lock: which one, how, and how long they wait.
type claimFlags struct {
	target    targetFlags
	log       logFlags
	nonblock  bool
	wait      span
	shared    bool
	exclusive bool
	permits   ratio
	busyCode  int
	ttl       span
	purpose   string
}

func (f *claimFlags) register(flags *pflag.FlagSet, ttl time.Duration) {
	f.registerLease(flags, ttl)
	flags.BoolVarP(&f.nonblock, "nonblock", "n", false, "do not wait: fail when the lock is busy")
	flags.VarP(&f.wait, "wait", "w", "wait at most this long (default: until granted)")
	flags.BoolVarP(&f.shared, "shared", "s", false, "hold the lock together with other shared holders")
	flags.BoolVarP(&f.exclusive, "exclusive", "x", false, "hold the lock alone (the default)")
	flags.Var(&f.permits, "permits", "hold k of the n permits of a semaphore")
	flags.IntVarP(&f.busyCode, "conflict-exit-code", "E", CodeBusy, "exit `code` when the lock is busy")
	oneOf(flags, "patience", "nonblock", "wait")
	oneOf(flags, "mode", "shared", "exclusive", "permits")
}

// registerLease registers those that do not say how to ask for the lock.
func (f *claimFlags) registerLease(flags *pflag.FlagSet, ttl time.Duration) {
	f.target.register(flags)
	f.log.register(flags, slog.LevelError)
	f.ttl = span{ttl, true}
	flags.Var(&f.ttl, "ttl", "time after which a dead holder's lock is free, 1 to 300")
	flags.StringVar(&f.purpose, "purpose", "", "`text` that others see with the holder")
}

// labels are those that the flags give the holder.
func (f *claimFlags) labels() map[string]string {
	labels := map[string]string{}
	if f.purpose != "" {
		labels["purpose"] = f.purpose
	}
	return labels
}

// A claimPlan is what lock a command asks for and how, checked.
type claimPlan struct {
	verb     string // the command, for messages
	target   Target
	name     string
	options  []lockstep.AcquireOption
	busyCode int
	endWith  endWith
	mode     string // see heldLock
	endless  bool   // it waits until it is granted
}

// plan checks the values of the flags. The labels are what others see beside the holder.
func (f *claimFlags) plan(a *App, verb, name string, labels map[string]string) (claimPlan, error) {
	plan := claimPlan{verb: verb, name: name, busyCode: f.busyCode, mode: f.mode(), endless: !f.nonblock && !f.wait.set}
	err := lockstep.CheckName(name)
	if err != nil {
		return claimPlan{}, err
	}
	if plan.target, err = f.target.target(); err != nil {
		return claimPlan{}, err
	}
	plan.target.TTL = f.ttl.d
	if err := f.checkValues(); err != nil {
		return claimPlan{}, err
	}
	if plan.target.Logger, err = f.log.logger(a.Err); err != nil {
		return claimPlan{}, err
	}
	plan.options = f.options(labels)
	return plan, nil
}

func (f *claimFlags) mode() string {
	switch {
	case f.shared:
		return modeShared
	case f.permits.n > 0:
		return f.permits.String()
	default:
		return modeExclusive
	}
}

func (f *claimFlags) checkValues() error {
	if err := lockstep.CheckTTL(f.ttl.d); err != nil {
		return usageError("--ttl: %w", err)
	}
	if f.busyCode < 0 || f.busyCode > 255 {
		return usageError("--conflict-exit-code: %d: must be 0 to 255", f.busyCode)
	}
	if f.wait.d > lockstep.MaxWait {
		return usageError("--wait: %v: must be at most %v", f.wait.d, lockstep.MaxWait)
	}
	return lockstep.CheckMetadata(map[string]string{"purpose": f.purpose})
}

func (f *claimFlags) options(labels map[string]string) []lockstep.AcquireOption {
	options := []lockstep.AcquireOption{lockstep.WithMetadata(labels)}
	switch {
	case f.nonblock:
		options = append(options, lockstep.WithWait(0))
	case f.wait.set:
		options = append(options, lockstep.WithWait(f.wait.d))
	}
	switch {
	case f.shared:
		options = append(options, lockstep.WithShared())
	case f.permits.n > 0:
		options = append(options, lockstep.WithPermits(f.permits.k, f.permits.n))
	}
	return options
}
