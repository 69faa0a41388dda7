// Package filefence guards a file: a write whose fencing token is older than one seen before is
// refused, whichever process it comes from.
//
// A [File] is a data file with its mark next to it. A [Dir] keeps only marks, for many resources,
// for guards that protect something else, such as fence/httpfence.
//
// # Rules
//
//  1. Steps on one file happen one after the other, across all processes of the machine: each holds
//     an operating system lock, flock(2), while it reads and writes. A step waits at most
//     [Config].Wait for its turn, then fails with [fence.ErrBusy].
//  2. The mark is raised, and is on disk, before the data changes. The data changes by a rename, so
//     a reader of the file always sees one complete version.
//  3. A write that returned nil survives a crash and a power cut. An interrupted write is either
//     finished by the next step on the file or has no effect; either way no older token is admitted
//     afterwards. [lockstep.ErrUncertain] means that it may be finished later: repeat it with the
//     same token.
//  4. Deleting removes the data and keeps the mark.
//  5. A mark that cannot be read admits no one.
//
// # On disk
//
// The data file "report" has these files in its directory:
//
//	report             the data as written, nothing else; any program may read it
//	report.fence       the mark, a line of JSON
//	report.fence.lock  empty; processes lock it, and it stays
//	report.fence.new   a mark being written, or left by a writer that died
//	report.fence.7     data number 7, not yet renamed to "report", or abandoned; or
//	                   an unfinished deletion number 7
//
// The mark counts the writes. New data is first stored under its number; then the mark is replaced
// by one with that number, which is the moment of decision; then the data is renamed into place. If
// a file has the number in the mark, the next step on the file renames it; a file with the
// following number was abandoned and is overwritten.
//
// To restore a file from a backup, restore only the data and leave the mark alone. To move it, move
// "report" and "report.fence" together while no writer is running.
//
// # What it costs
//
// A write syncs the disk five times: for the data, its name, the mark, the name of the mark, and
// the renamed data. Entering with a new token syncs twice; entering again with the same token syncs
// once. A refused step and a read sync nothing. A write holds the data in memory and needs disk
// space for a second copy while it runs.
//
// # What it cannot do
//
//   - Network file systems are refused where the system can identify them, which is Linux: their
//     locks and renames do not keep these rules. FUSE is refused too.
//   - A process that is stopped in the middle of a step blocks the others until it is killed or
//     continues. They get ErrBusy; nothing is corrupted.
//   - A user who can open the lock file can lock it and keep the writers out: they get ErrBusy. Its
//     mode is 0644 less the umask when it is created, and later what you make it.
//   - A symbolic link as the data file is refused: two names would have two marks. So would two
//     hard links, which a rename also breaks: do not guard a hard-linked file.
//   - The file gets a new inode with each write. Its permission bits are kept; its
//     owner, access lists and extended attributes are not.
//   - It works where flock(2) exists: Linux, macOS and the BSDs. Elsewhere, including Windows,
//     [Open] and [OpenDir] return [lockstep.ErrUnsupported].
package filefence
