// Package backup reads and writes the file of a backup: the state of a lock table with a note of where it comes
// from. The file has no names of other files in it, so reading it touches nothing else.
//
// It is, in this order,
//
//	"lockstep backup\n"
//	length(4) header checksum(4): JSON, CRC-32C, big endian
//	a snapshot of the machine, which has checksums of its own
//	SHA-256(32) of everything before
package backup
