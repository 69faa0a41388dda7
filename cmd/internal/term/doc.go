// Package term is what a command needs to run another one under a lock: process
// groups, a watcher that outlives its parent, the foreground of a terminal.
//
// # Who kills whom
//
// The command runs in a process group of its own, which a [Child] stands for. A
// [Watcher] is a second process of the same program in a session of its own. It
// knows the group and the end of the lease, and kills the group when that end
// passes or when its parent is gone. So a parent that is killed or frozen leaves
// nothing of the group at work; the parent-death signal of the kernel would reach
// the direct child alone.
//
// # Order of a start
//
//  1. [StartChild] forks a copy of this program into the new group, where it waits.
//  2. [StartWatcher] returns when the watcher has the group and the deadline.
//  3. [Child.Go] lets the copy become the command.
//
// Whoever dies between two of these steps, no code of the command runs unwatched.
// Processes that leave the group, as daemons and the jobs of an interactive shell
// do, are out of reach.
//
// All times are readings of [Now], which two processes of one machine may compare.
package term
