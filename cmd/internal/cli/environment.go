package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/cmd/internal/supervise"
)

// waitsForItself rejects a claim that would wait without limit for a lock held by an enclosing run,
// which in turn waits for this process. Processes that the command left running keep the variable
// after the run has ended, so only ancestors count.
func (a *App) waitsForItself(plan claimPlan) error {
	outer := parseHeld(a.Getenv(heldVariable))
	for _, mine := range held(0, plan) {
		around := slices.DeleteFunc(slices.Clone(outer), func(h heldLock) bool {
			return h.name != mine.name || h.service != mine.service || !supervise.Descends(h.pid)
		})
		if plan.endless && excludes(around, plan.mode) {
			return usageError("%s is held by the enclosing lockstep (process %d), which waits for this one to end: use another name, drop the inner %s, or use -n",
				printable(mine.name), around[0].pid, plan.verb)
		}
	}
	return nil
}

// environment returns our environment plus the variables of the lock. Those of an enclosing run are
// removed, since programs differ in which of two duplicates they see.
func environment(lock lockstep.Lock, plan claimPlan) []string {
	own := [][2]string{
		{"LOCKSTEP_LOCK", lock.Name()},
		{"LOCKSTEP_TOKEN", fmt.Sprint(uint64(lock.Token()))},
		{"LOCKSTEP_SESSION", owner(lock)},
		{heldVariable, strings.TrimSpace(os.Getenv(heldVariable) + " " + heldWords(held(os.Getpid(), plan)))},
	}
	var env []string
	for _, entry := range os.Environ() {
		key, _, _ := strings.Cut(entry, "=")
		if !slices.ContainsFunc(own, func(v [2]string) bool { return v[0] == key }) {
			env = append(env, entry)
		}
	}
	for _, v := range own {
		env = append(env, v[0]+"="+v[1])
	}
	return env
}

func heldWords(all []heldLock) string {
	var words []string
	for _, h := range all {
		words = append(words, h.String())
	}
	return strings.Join(words, " ")
}
