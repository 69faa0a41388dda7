package command

import (
	"encoding/binary"
	"fmt"
)

// entryVersion is the first byte of an encoded entry.
const entryVersion = 1

// MaxCommands bounds the commands of one entry: a session id has 16 bits for the position in the
// entry.
const MaxCommands = 1 << 16

// The numbers of the command kinds on disk. They are never reused for another kind. [LevelOf] gives
// their feature levels.
const (
	kindOpenSession = iota + 1
	kindCloseSession
	kindAcquire
	kindCancel
	kindRelease
	kindExpire
	kindEndWait
	kindEndDelay
	kindRevoke
	kindSetTokenFloor
	kindSetLimits
	kindCheckHash
	kindEndRecovery
	kindSetMember
	kindRemoveMember
	kindSetBirth
	kindCheckpointLeases
	kindRenewLeases
	kindOpenSessionHashed
)

// AppendEntry appends the encoding of e to dst. It panics on a command of unknown type and on more
// than [MaxCommands] commands.
func AppendEntry(dst []byte, e *Entry) []byte {
	if len(e.Commands) > MaxCommands {
		panic(fmt.Sprintf("command: %d commands in one entry, the limit is %d", len(e.Commands), MaxCommands))
	}
	dst = append(dst, entryVersion)
	dst = binary.AppendUvarint(dst, e.Header.Proposer)
	dst = binary.AppendUvarint(dst, e.Header.Batch)
	dst = binary.AppendUvarint(dst, uint64(e.Header.Wall))
	dst = binary.AppendUvarint(dst, uint64(len(e.Commands)))
	for _, c := range e.Commands {
		dst = appendCommand(dst, c)
	}
	return dst
}

// EncodedSize returns the number of bytes that c adds to an entry.
func EncodedSize(c Command) int {
	var scratch [1024]byte // most commands fit, and then nothing is allocated
	return len(appendCommand(scratch[:0], c))
}

// appendCommand appends length, kind and fields. The fields are first written two bytes further on,
// leaving room for the length; they are moved if the length needs more.
func appendCommand(dst []byte, c Command) []byte {
	start := len(dst)
	dst = append(dst, 0)
	dst = appendBody(dst, c)
	size := len(dst) - start - 1
	if size < 0x80 {
		dst[start] = byte(size)
		return dst
	}
	var prefix [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(prefix[:], uint64(size))
	dst = append(dst, prefix[:n-1]...)
	copy(dst[start+n:], dst[start+1:start+1+size])
	copy(dst[start:], prefix[:n])
	return dst
}

func appendBody(dst []byte, c Command) []byte {
	switch c := c.(type) {
	case OpenSession:
		kind := byte(kindOpenSession)
		if c.Hashed {
			kind = kindOpenSessionHashed
		}
		return appendOpenSession(append(dst, kind), &c)
	case CloseSession:
		return append(append(dst, kindCloseSession), c.Session[:]...)
	case Acquire:
		return appendAcquire(append(dst, kindAcquire), &c)
	case Cancel:
		dst = AppendClaimID(append(dst, kindCancel), ClaimID{c.Session, c.Seq})
		dst = binary.AppendUvarint(dst, c.Floor)
		return binary.AppendUvarint(dst, c.Seen)
	case Release:
		dst = AppendClaimID(append(dst, kindRelease), ClaimID{c.Session, c.Seq})
		return binary.AppendUvarint(dst, uint64(c.Token))
	case Expire:
		return appendSessionIDs(binary.AppendUvarint(append(dst, kindExpire), c.Term), c.Sessions)
	case EndWait:
		return appendClaims(binary.AppendUvarint(append(dst, kindEndWait), c.Term), c.Claims)
	case EndDelay:
		return appendClaims(binary.AppendUvarint(append(dst, kindEndDelay), c.Term), c.Claims)
	case Revoke:
		dst = AppendClaimID(append(dst, kindRevoke), c.Claim)
		dst = binary.AppendUvarint(dst, uint64(c.Token))
		dst = AppendText(AppendText(dst, c.By), c.Reason)
		return AppendBool(dst, c.Now)
	case SetTokenFloor:
		return binary.AppendUvarint(append(dst, kindSetTokenFloor), uint64(c.Floor))
	case SetLimits:
		return AppendLimits(append(dst, kindSetLimits), &c.Limits)
	case CheckHash:
		dst = binary.AppendUvarint(append(dst, kindCheckHash), c.Index)
		return binary.AppendUvarint(dst, c.Hash)
	case EndRecovery:
		return binary.AppendUvarint(append(dst, kindEndRecovery), c.Term)
	case SetMember:
		return AppendMember(append(dst, kindSetMember), &c.Member)
	case RemoveMember:
		return binary.AppendUvarint(append(dst, kindRemoveMember), c.ID)
	case SetBirth:
		return append(append(dst, kindSetBirth), c.Birth[:]...)
	case CheckpointLeases:
		return appendCheckpointLeases(append(dst, kindCheckpointLeases), &c)
	case RenewLeases:
		return appendSessionIDs(binary.AppendUvarint(append(dst, kindRenewLeases), c.Term), c.Sessions)
	default:
		panic(fmt.Sprintf("command: cannot encode command %T", c))
	}
}

func appendOpenSession(dst []byte, c *OpenSession) []byte {
	dst = binary.AppendUvarint(dst, uint64(c.TTL))
	dst = append(dst, c.Random[:]...)
	dst = append(dst, c.Secret[:]...)
	dst = AppendBool(dst, c.ClientNumbered)
	return AppendLabels(dst, c.Metadata)
}

func appendAcquire(dst []byte, c *Acquire) []byte {
	dst = AppendClaimID(dst, ClaimID{c.Session, c.Seq})
	dst = AppendText(dst, c.Nonce)
	dst = binary.AppendUvarint(dst, c.Floor)
	dst = binary.AppendUvarint(dst, c.Seen)
	return AppendSpec(dst, &c.Spec)
}

func appendSessionIDs(dst []byte, ids []SessionID) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ids)))
	for _, id := range ids {
		dst = append(dst, id[:]...)
	}
	return dst
}

func appendClaims(dst []byte, ids []ClaimID) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ids)))
	for _, id := range ids {
		dst = AppendClaimID(dst, id)
	}
	return dst
}
