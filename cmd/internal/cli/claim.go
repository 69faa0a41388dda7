package cli

import (
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/cmd/internal/supervise"
)

// claimFlags are the flags of commands that request a lock: which one, how, and how long they wait.
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
	also      []string
	lockDelay span
}

func (f *claimFlags) register(flags *pflag.FlagSet, ttl time.Duration) {
	f.registerLease(flags, ttl)
	flags.BoolVarP(&f.nonblock, "nonblock", "n", false, "do not wait: fail if the lock is busy")
	flags.VarP(&f.wait, "wait", "w", "wait at most this long (default: no limit)")
	flags.Var(&f.wait, "timeout", "same as --wait")
	flags.StringArrayVar(&f.also, "also", nil, "also acquire the lock `NAME`, all of them or none; may be repeated; all names must share the first segment")
	onlyOnCommandLine(flags, "also", refused) // like NAME
	flags.Var(&f.lockDelay, "lock-delay", "keep the lock closed this long after the lease of a dead holder ends, up to 1h")
	flags.BoolVarP(&f.shared, "shared", "s", false, "hold the lock together with other shared holders")
	flags.BoolVarP(&f.exclusive, "exclusive", "x", false, "hold the lock exclusively (the default)")
	flags.Var(&f.permits, "permits", "hold k of the n permits of a semaphore")
	flags.IntVarP(&f.busyCode, "conflict-exit-code", "E", CodeBusy, "exit `code` if the lock is busy")
	oneOf(flags, "patience", "nonblock", "wait", "timeout")
	oneOf(flags, "mode", "shared", "exclusive", "permits")
}

// registerLease registers the flags that do not affect how the lock is requested.
func (f *claimFlags) registerLease(flags *pflag.FlagSet, ttl time.Duration) {
	f.target.register(flags)
	f.log.register(flags, slog.LevelError)
	f.ttl = span{ttl, true}
	flags.Var(&f.ttl, "ttl", "lease duration: the lock of a dead holder is free after this time, 1 to 300")
	flags.StringVar(&f.purpose, "purpose", "", "`text` that others see next to the holder")
}

// labels returns the labels that the flags set on the holder.
func (f *claimFlags) labels() map[string]string {
	labels := map[string]string{}
	if f.purpose != "" {
		labels["purpose"] = f.purpose
	}
	return labels
}

// A claimPlan says which lock a command requests and how, after validation.
type claimPlan struct {
	verb     string // the command name, for messages
	target   Target
	name     string
	also     []string // taken together with name
	options  []lockstep.AcquireOption
	labels   map[string]string // what others see about the holder
	busyCode int
	endWith  supervise.EndWith
	mode     string // see heldLock
	endless  bool   // it waits until the lock is granted
}

// plan validates the flags. Others see the labels next to the holder.
func (f *claimFlags) plan(a *App, verb, name string, labels map[string]string) (claimPlan, error) {
	plan := claimPlan{verb: verb, name: name, also: f.also, busyCode: f.busyCode, mode: f.mode(), endless: !f.nonblock && !f.wait.set}
	var err error
	for _, each := range plan.names() {
		if err = lockstep.CheckName(each); err != nil {
			return claimPlan{}, err
		}
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
	plan.labels, plan.options = labels, f.options(labels)
	return plan, nil
}

// names returns all the lock names in the claim.
func (p claimPlan) names() []string { return append([]string{p.name}, p.also...) }

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
	if f.lockDelay.d > lockstep.MaxLockDelay {
		return usageError("--lock-delay: %v: must be at most %v", f.lockDelay.d, lockstep.MaxLockDelay)
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
	if len(f.also) > 0 {
		options = append(options, lockstep.WithAlso(f.also...))
	}
	if f.lockDelay.d > 0 {
		options = append(options, lockstep.WithLockDelay(f.lockDelay.d))
	}
	return options
}
