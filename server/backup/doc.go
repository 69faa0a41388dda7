// Package backup reads and writes backup files: the state of a lock table with a record of where it
// comes from. The file contains no names of other files, so reading it touches nothing else.
//
// It consists of, in this order,
//
//	"lockstep backup\n"
//	length(4) header checksum(4): JSON, CRC-32C, big endian
//	a snapshot of the machine, which has checksums of its own
//	SHA-256(32) of everything before
package backup
