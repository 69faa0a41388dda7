// Package filefence guards a file: a write that carries an older fencing token than
// one seen before is refused, whichever process it comes from.
//
// A [File] is a data file with its mark beside it. A [Dir] keeps marks alone, of
// many resources, for guards that protect something else, such as fence/httpfence.
//
// # Rules
//
//  1. Steps at one file happen one after the other, in all processes of the machine:
//     each holds a lock of the operating system, flock(2), while it looks and writes. It waits
//     at most [Config].Wait for its turn, then it is [fence.ErrBusy].
//  2. The mark is raised, and is on the disk, before the data changes. Data changes by
//     renaming, so that whoever reads the file sees one whole version.
//  3. A write that returned nil survives a crash and a power cut. One that was cut off
//     is either finished by the next step at the file, or never was; either way no older token
//     is admitted afterwards. [lockstep.ErrUncertain] means that it may be finished
//     later: repeat it with the same token.
//  4. Deleting removes the data and keeps the mark.
//  5. A mark that cannot be read admits nobody.
//
// # On the disk
//
// For the data file "report" these files are in its directory:
//
//	report             the data as they were written, nothing else; any program may read it
//	report.fence       the mark, a line of JSON
//	report.fence.lock  empty, what processes lock; it stays
//	report.fence.new   a mark that is being written, or was when a writer died
//	report.fence.7     data number 7, not yet renamed to "report", or abandoned; a deletion
//	                   number 7 that is not finished
//
// The mark counts the writes. Data are first stored under their number, then the mark is
// replaced by one with that number, which is the moment that decides, and then the data
// are renamed. A file whose number the mark has is renamed by the next step at
// the file; one with the number after it was abandoned and is overwritten.
//
// To restore a file from a backup, restore the data alone and leave the mark. To
// move it, move "report" and "report.fence" together while no writer is at work.
//
// # What it costs
//
// A write syncs the disk five times: the data, their name, the mark, its name, and the
// renamed data. Entering with a new token syncs twice, again with the same token
// once. A refused step and a read sync nothing. A write holds the data in memory and
// needs room for a second copy on the disk while it goes on.
//
// # What it cannot do
//
//   - File systems of other machines are refused where the system says what they are, which is
//     Linux: their locks and renames do not keep these rules. FUSE is refused too.
//   - A process that is stopped in the middle of a step keeps the others out until it is killed or
//     goes on. They get ErrBusy; nothing is corrupted.
//   - A symbolic link as the data file is refused: two names would have two marks. So
//     would two hard links, and a rename breaks them: do not guard a hard-linked file.
//   - The file gets a new inode with each write. Its permission bits are kept; its
//     owner, access lists and extended attributes are not.
//   - It works where there is flock(2): Linux, macOS and the BSDs. Elsewhere, on Windows
//     too, [Open] and [OpenDir] return [lockstep.ErrUnsupported].
package filefence
