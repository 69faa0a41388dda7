// Package supervise runs a command under a lock: it waits for the lock, watches the command, and
// ends the command and everything that descends from it when the lock is lost. It knows nothing of
// command lines. It reports what a user should know as an [Event], and how the command ended as an
// error; only the helper processes described below print, when no process is left to report to.
//
// [Acquire] waits for a lock; [Holder.Run] runs a command under it, and [Holder.Keep] just holds
// it. [Elect] campaigns for leadership again and again, and runs the command in each term. Both are
// built on a holding, which carries out the orders of an overseer: a plain struct that takes the
// time, the end of the lease and the signals, and decides when the command gets TERM and KILL.
//
// # Process tree
//
//	lockstep run ── watcher ── command ── its descendants
//
// The watcher is a second process of the same program. On Linux it is a child subreaper: orphaned
// descendants become its children, so every descendant of the command stays below the watcher,
// whatever its process group or session. The watcher knows the end of the lease. When that passes,
// or when its parent is gone, the watcher kills everything below it, and repeats that until the
// kernel reports that no child is left. That report is exact; process listings are not.
//
// A child is the parent's side of this. It also kills everything below the watcher, in case the
// watcher is frozen. If only the watcher is killed, the kernel kills the command (by the
// parent-death signal), and the command's orphans become children of this program, which is a
// subreaper as well (see [Adopt]) and kills them.
//
// # How a command is started
//
//  1. startChild starts the watcher, which starts a copy of this program in its own process
//     group. The copy waits. startChild returns once the watcher has the deadline.
//  2. child.Go lets the copy become the command.
//
// The command never runs unwatched, no matter which process dies between the two steps.
//
// # Limits
//
// Some processes are out of reach: those that this user may not signal, those that hang in the
// kernel, and those that a daemon starts on request (at, systemd-run without --scope, docker). When
// this program and the watcher are killed together, the kernel kills the command itself, unless it
// is a setuid program or has file capabilities (exec clears its parent-death signal), and nothing
// kills what it started. If both are frozen, nothing is killed until they are continued. Systems
// other than Linux have no subreapers: there the command's process group is killed, and processes
// that leave the group are out of reach.
//
// All times are readings of [Now], which two processes on one machine can compare.
package supervise
