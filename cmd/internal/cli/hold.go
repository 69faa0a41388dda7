package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// hold holds the lock until it is asked to end, or until the lock is lost.
func (a *App) hold(ctx context.Context, plan holdPlan) error {
	h, err := a.begin(ctx, plan.claimPlan)
	if h == nil {
		return err
	}
	if err := a.printHeld(reportGrant(h.Locker(), h.Lock()), plan.out); err != nil {
		h.Release(nil)
		return err
	}
	if loss := h.Keep(plan.maxHold); loss != nil {
		h.Release(loss)
		return lostWhileHeld(plan.name, loss)
	}
	return h.Release(nil)
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
	h, err := a.begin(ctx, plan.claimPlan)
	if h == nil {
		return err
	}
	d, err := detacher(h.Locker())
	if err != nil {
		h.Release(nil)
		return err
	}
	report := reportGrant(h.Locker(), h.Lock())
	handle, err := d.Detach(ctx, h.Lock())
	if err != nil {
		h.Release(nil)
		return err
	}
	if err = a.handOut(handle, report, file, plan.out); err != nil {
		if a.takeBack(d, handle) {
			file.withdraw()
		}
	}
	h.Leave()
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

// takeBackLimit bounds takeBack.
const takeBackLimit = 5 * time.Second

// takeBack releases a lock whose handle nobody received, and reports whether it is free.
func (a *App) takeBack(d lockstep.Detacher, handle lockstep.Handle) (free bool) {
	ctx, cancel := context.WithTimeout(context.Background(), takeBackLimit)
	defer cancel()
	lock, err := d.Attach(ctx, handle)
	if err == nil {
		err = lock.Release(ctx)
	}
	if err != nil {
		a.complain("acquire", fmt.Errorf("the lock stays held until its lease ends: %w", err))
	}
	return err == nil
}
