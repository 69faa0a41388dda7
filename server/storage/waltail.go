package storage

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// The chunks of a write-ahead log, as Pebble's package record has written them since
// FormatWALSyncChunks:
//
//	checksum(4) length(2) kind(1) log number(4) synced(8) payload
//
// in blocks of 32 KiB that no chunk crosses. synced is the offset up to which the log was durable
// when the chunk was written.
const (
	walBlock      = 32 << 10
	walChunkHead  = 19
	walTrailer    = 11
	walChunkFirst = 9 // kinds of this format
	walChunkLast  = 12
)

// durableBeyond reports whether a chunk in rest, which follows offset at of log n, says that the
// log was durable beyond at.
//
// Pebble looks for such chunks from the next block on. Within the block it can't resume, since the
// lengths of damaged chunks can't be trusted. We try every byte.
func durableBeyond(rest []byte, at int64, n uint64) bool {
	broken := at
	if room := walBlock - at%walBlock; room < walChunkHead {
		broken += room // the next chunk starts in the next block
	}
	for i := 0; i+walChunkHead <= len(rest); i++ {
		kind := rest[i+6]
		if kind < walChunkFirst || kind > walChunkLast || binary.LittleEndian.Uint32(rest[i+7:]) != uint32(n) {
			continue
		}
		end := i + walChunkHead + int(binary.LittleEndian.Uint16(rest[i+4:]))
		if end > len(rest) || walChecksum(rest[i+6:end]) != binary.LittleEndian.Uint32(rest[i:]) {
			continue
		}
		synced, place := binary.LittleEndian.Uint64(rest[i+11:]), uint64(at)+uint64(i)
		if synced > uint64(broken) && synced <= place {
			return true
		}
	}
	return false
}

// tornBytes returns how much of an incomplete record of log n is at the start of rest. It is zero
// for the zeros of a preallocated file, for what an older log left in a reused file, and for the
// trailer that Pebble writes when it closes a log: the first 11 bytes of a header, with the number
// of the next log.
func tornBytes(rest []byte, n uint64) int {
	if len(rest) >= walTrailer {
		if number := binary.LittleEndian.Uint32(rest[7:]); number != uint32(n) && number != 0 {
			return 0
		}
	}
	return len(bytes.TrimRight(rest, "\x00"))
}

// walChecksum is CRC-32C in the masked form introduced by LevelDB.
func walChecksum(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}
