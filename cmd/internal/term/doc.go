// Package term is what a command needs to run another one under a lock: a watcher
// that is the command's parent, signals, the foreground of a terminal.
//
// # Who is whose parent
//
//	lockstep run ── watcher ── command ── whatever it starts
//
// The watcher is a second process of the same program. On Linux it is a child
// subreaper: a process whose parent ends becomes its child, so everything that
// descends from the command stays below the watcher, in whatever process group or
// session it is. The watcher knows the end of the lease. When that end passes, or
// when its parent is gone, it kills all that is below it, and repeats that until the
// kernel says that it has no child left. That answer is exact; lists of processes are not.
//
// [Child] is the parent's side. It kills below the watcher too, for a watcher that is
// frozen. When the watcher alone is killed, the kernel kills the command (the
// parent-death signal), its orphans become children of this program, which is a
// subreaper as well (see [Adopt]), and are killed from here.
//
// # Order of a start
//
//  1. [StartChild] starts the watcher, which starts a copy of this program in a
//     process group of its own. The copy waits. StartChild returns when the watcher has the deadline.
//  2. [Child.Go] lets the copy become the command.
//
// No code of the command runs unwatched, no matter which process dies between two steps.
//
// # What stays out of reach
//
// A process that this user may not signal; one that hangs in the kernel; one that a
// daemon starts on request (at, systemd-run without --scope, docker). When this
// program and the watcher are killed together, the kernel kills the command itself,
// unless that is a setuid program or has file capabilities (exec clears its parent-death signal), and nobody
// kills what it started. Frozen together, they do nothing until they are
// continued. Other systems than Linux have no subreapers: there the command's process group
// is killed, and what leaves the group is out of reach.
//
// All times are readings of [Now], which two processes of one machine may compare.
package term
