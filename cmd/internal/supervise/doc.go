// Package supervise runs a command under a lock: it waits for the lock, watches the command, and
// ends the command and everything that descends from it when the lock is lost. It knows no command
// line. What a user should know is an [Event], and how it ended is an error; only the helper
// processes below print, when nothing is left that they could report to.
//
// [Acquire] waits for a lock; [Holder.Run] runs a command under it, and [Holder.Keep] just holds
// it. [Elect] campaigns for leadership again and again, and runs the command in each term. In the
// middle of both is a holding, which does what an overseer orders: a plain struct that is told the
// time, the end of the lease and the signals, and decides when the command gets TERM and KILL.
//
// # Who is whose parent
//
//	lockstep run ── watcher ── command ── its descendants
//
// The watcher is a second process of the same program. On Linux it is a child subreaper: orphaned
// descendants become its children, so every descendant of the command stays below the watcher,
// whatever its process group or session. The watcher knows the end of the lease. When that passes,
// or when its parent is gone, the watcher kills everything below it, and repeats that until the
// kernel says that it has no children left. That answer is exact; process listings are not.
//
// A child is the parent's side. It also kills below the watcher, in case the watcher is frozen. If
// only the watcher is killed, the kernel kills the command (by the parent-death signal), and the
// command's orphans become children of this program, which is a subreaper as well (see [Adopt]) and
// kills them.
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
// Out of reach are processes that this user may not signal, processes that hang in the kernel, and
// processes that a daemon starts on request (at, systemd-run without --scope, docker). When this
// program and the watcher are killed together, the kernel kills the command itself, unless it is a
// setuid program or has file capabilities (exec clears its parent-death signal), and nothing kills
// what it started. If both are frozen, they do nothing until they are continued. Systems other than
// Linux have no subreapers: there the command's process group is killed, and processes that leave
// the group are out of reach.
//
// All times are readings of [Now], which two processes on one machine can compare.
package supervise
