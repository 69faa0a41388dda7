//go:build unix

package cli

import (
	"context"
	"os/signal"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/cmd/internal/supervise"
)

// holdLook is the interval between checks of what --end-with names, and of the lease's clock.
const holdLook = 100 * time.Millisecond

// hold holds the lock until it is asked to end, or until the lock is lost.
func (a *App) hold(ctx context.Context, plan holdPlan) error {
	r, err := a.begin(ctx, plan.claimPlan)
	if r == nil {
		return err
	}
	defer signal.Stop(r.signals)
	if err := a.printHeld(reportGrant(r.locker, r.lock), plan.out); err != nil {
		r.release(nil)
		return err
	}
	if loss := r.keep(plan.maxHold); loss != nil {
		r.release(loss)
		return lostWhileHeld(plan.name, loss)
	}
	return r.release(nil)
}

// keep waits until it is asked to end, or until most has passed if that is not zero. It returns an
// error if the lock was lost.
func (r *runner) keep(most time.Duration) error {
	began := supervise.Now()
	look := time.NewTicker(holdLook)
	defer look.Stop()
	for {
		select {
		case <-r.lock.Context().Done():
		case <-look.C:
		case sig := <-r.signals:
			if supervise.Ends(sig) {
				return r.lock.Check()
			}
		}
		if err := r.lock.Check(); err != nil {
			return err
		}
		if r.plan.endWith.due() != "" || most > 0 && supervise.Now() >= began+most {
			return nil
		}
	}
}

// acquire takes the lock and leaves it held.
func (a *App) acquire(ctx context.Context, plan acquirePlan) error {
	var file *handleFile
	if plan.file != "" {
		var err error
		if file, err = newHandleFile(plan.file, plan.force); err != nil {
			return err
		}
	}
	defer file.drop()
	r, err := a.begin(ctx, plan.claimPlan)
	if r == nil {
		return err
	}
	defer signal.Stop(r.signals)
	d, err := detacher(r.locker)
	if err != nil {
		r.release(nil)
		return err
	}
	report := reportGrant(r.locker, r.lock)
	handle, err := d.Detach(ctx, r.lock)
	if err != nil {
		r.release(nil)
		return err
	}
	if err = a.handOut(handle, report, file, plan.out); err != nil {
		if r.takeBack(d, handle) {
			file.withdraw()
		}
	}
	r.leave(goodbye)
	return err
}

// handOut puts the handle where the user asked for it.
func (a *App) handOut(handle lockstep.Handle, report grantReport, file *handleFile, out output) error {
	if file == nil {
		report.Handle = string(handle)
	} else if err := file.write(handle); err != nil {
		return err
	}
	return a.printAcquired(report, out)
}

// takeBack releases a lock whose handle nobody received, and reports whether it is free.
func (r *runner) takeBack(d lockstep.Detacher, handle lockstep.Handle) (free bool) {
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	lock, err := d.Attach(ctx, handle)
	if err == nil {
		err = lock.Release(ctx)
	}
	if err != nil {
		r.say("the lock stays held until its lease ends: %w", err)
	}
	return err == nil
}
