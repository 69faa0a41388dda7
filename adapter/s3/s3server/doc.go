// Package s3server starts an S3 server on this machine, for tests and demonstrations.
//
// A [Server] is one process of versitygw, a gateway that keeps the objects of a bucket as files
// below one directory. It listens on 127.0.0.1, serves one bucket to one user, can be killed and
// started again, and ends with [Server.Close].
//
// # What it keeps
//
// An object is a file, and its ETag an extended attribute of it, so the directory must be on a file
// system with attributes "user.*": ext4, xfs, btrfs, or tmpfs of Linux 6.6 and later. Its mode with
// a file of attributes beside each object is not used: object and ETag are then not replaced in one
// step.
//
// A killed server loses nothing that it has confirmed. It does not sync: a machine that fails may.
//
// # Conditional puts
//
// versitygw 1.8.0 holds a lock of the key while it compares the ETag and renames the new object
// into place: of many puts with the same condition one wins. See package s3fence, whose tests
// measure it.
//
// The package needs the program versitygw: see [Program].
package s3server
