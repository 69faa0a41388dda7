package command

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// DecodeEntry reads what AppendEntry wrote. An error means that the bytes are damaged or come from
// a newer build: the node must stop, since skipping the entry would fork the replicas. Nothing in
// the entry shares memory with b.
func DecodeEntry(b []byte) (Entry, error) {
	if len(b) == 0 {
		return Entry{}, fmt.Errorf("command: decode entry: %w", errTruncated)
	}
	if b[0] != entryVersion {
		return Entry{}, fmt.Errorf("command: %w: entry has format %d, this build supports %d", ErrNewer, b[0], entryVersion)
	}
	var e Entry
	b = b[1:]
	var fields [4]uint64
	for i := range fields {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return Entry{}, fmt.Errorf("command: decode entry: %w", errTruncated)
		}
		fields[i], b = v, b[n:]
	}
	e.Header = Header{Proposer: fields[0], Batch: fields[1], Wall: WallMillis(fields[2])}
	count := fields[3]
	// A command has at least a length and a kind.
	if count > MaxCommands || count > uint64(len(b)/2) {
		return Entry{}, fmt.Errorf("command: decode entry: %d commands in %d bytes", count, len(b))
	}
	e.Commands = make([]Command, 0, count)
	for range count {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return Entry{}, fmt.Errorf("command: decode command %d: %w", len(e.Commands), errTruncated)
		}
		// One string per command: its names and labels share it, and nothing else keeps it alive.
		c, err := decodeCommand(string(b[n : n+int(size)]))
		if err != nil {
			return Entry{}, fmt.Errorf("command: decode command %d: %w", len(e.Commands), err)
		}
		e.Commands = append(e.Commands, c)
		b = b[n+int(size):]
	}
	if len(b) != 0 {
		return Entry{}, fmt.Errorf("command: decode entry: %d bytes too many", len(b))
	}
	return e, nil
}

// ErrNewer is returned for an entry, a snapshot or a backup that only a newer build can read.
var ErrNewer = errors.New("this node is older than its cluster: upgrade it")

func decodeCommand(s string) (Command, error) {
	d := NewDecoder(s)
	kind := d.Byte()
	c, err := decodeBody(d, kind)
	if err != nil {
		return nil, err
	}
	if err := d.End(); err != nil {
		return nil, err
	}
	return c, nil
}

func decodeBody(d *Decoder, kind byte) (Command, error) {
	switch kind {
	case kindOpenSession:
		return decodeOpenSession(d, false), nil
	case kindCloseSession:
		return CloseSession{d.Bytes16()}, nil
	case kindAcquire:
		return decodeAcquire(d), nil
	case kindCancel:
		return Cancel{d.Bytes16(), d.Uint(), d.Uint(), d.Uint()}, nil
	case kindRelease:
		return Release{d.Bytes16(), d.Uint(), Token(d.Uint())}, nil
	case kindExpire:
		return decodeExpire(d), nil
	case kindEndWait:
		return EndWait{d.Uint(), decodeClaims(d)}, nil
	case kindEndDelay:
		return EndDelay{d.Uint(), decodeClaims(d)}, nil
	case kindRevoke:
		return Revoke{d.ClaimID(), Token(d.Uint()), d.Text(), d.Text(), d.Bool()}, nil
	case kindSetTokenFloor:
		return SetTokenFloor{Token(d.Uint())}, nil
	case kindSetLimits:
		return SetLimits{d.Limits()}, nil
	case kindCheckHash:
		return CheckHash{d.Uint(), d.Uint()}, nil
	case kindEndRecovery:
		return EndRecovery{d.Uint()}, nil
	case kindSetMember:
		return SetMember{d.Member()}, nil
	case kindRemoveMember:
		return RemoveMember{d.Uint()}, nil
	case kindSetBirth:
		return SetBirth{d.Bytes16()}, nil
	case kindCheckpointLeases:
		return decodeCheckpointLeases(d), nil
	case kindRenewLeases:
		return RenewLeases(decodeExpire(d)), nil
	case kindOpenSessionHashed:
		return decodeOpenSession(d, true), nil
	default:
		return nil, fmt.Errorf("%w: a command of kind %d is unknown to this build", ErrNewer, kind)
	}
}

func decodeOpenSession(d *Decoder, hashed bool) OpenSession {
	c := OpenSession{TTL: Millis(d.Uint()), Hashed: hashed}
	copy(c.Random[:], d.raw(8))
	c.Secret = d.Bytes16()
	c.ClientNumbered = d.Bool()
	c.Metadata = d.Labels()
	return c
}

func decodeAcquire(d *Decoder) Acquire {
	return Acquire{
		Session: d.Bytes16(),
		Seq:     d.Uint(),
		Nonce:   d.Text(),
		Floor:   d.Uint(),
		Seen:    d.Uint(),
		Spec:    d.Spec(),
	}
}

func decodeExpire(d *Decoder) Expire {
	c := Expire{Term: d.Uint()}
	if n := d.Count(16); n > 0 {
		c.Sessions = make([]SessionID, n)
		for i := range c.Sessions {
			c.Sessions[i] = d.Bytes16()
		}
	}
	return c
}

func decodeClaims(d *Decoder) []ClaimID {
	n := d.Count(17)
	if n == 0 {
		return nil
	}
	ids := make([]ClaimID, n)
	for i := range ids {
		ids[i] = d.ClaimID()
	}
	return ids
}
