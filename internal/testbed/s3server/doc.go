// Package s3server starts an S3 server on this machine, for tests and demonstrations.
//
// A [Server] is one process of versitygw, a gateway that stores the objects of a bucket as files
// below one directory. It listens on 127.0.0.1, serves one bucket to one user, can be killed and
// restarted, and ends with [Server.Close].
//
// # What it keeps
//
// An object is a file, and its ETag is an extended attribute of the file, so the directory must be
// on a file system with "user.*" attributes: ext4, xfs, btrfs, or tmpfs on Linux 6.6 and later. The
// mode with a separate attributes file per object is not used, because it does not replace object
// and ETag in one step.
//
// A killed server loses nothing that it has confirmed. It does not sync, so a machine failure may
// lose data.
//
// # Conditional puts
//
// versitygw 1.8.0 holds a lock on the key while it compares the ETag and renames the new object
// into place: of many puts with the same condition one wins. See package s3fence, whose tests
// measure it.
//
// The package needs the versitygw program: see [Program].
package s3server
