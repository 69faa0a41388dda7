package machine

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
		return Entry{}, fmt.Errorf("machine: decode entry: %w", errTruncated)
	}
	if b[0] != entryVersion {
		return Entry{}, fmt.Errorf("machine: %w: entry has format %d, this build supports %d", ErrNewer, b[0], entryVersion)
	}
	var e Entry
	b = b[1:]
	var fields [4]uint64
	for i := range fields {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return Entry{}, fmt.Errorf("machine: decode entry: %w", errTruncated)
		}
		fields[i], b = v, b[n:]
	}
	e.Header = Header{Proposer: fields[0], Batch: fields[1], Wall: WallMillis(fields[2])}
	count := fields[3]
	// A command has at least a length and a kind.
	if count > MaxCommands || count > uint64(len(b)/2) {
		return Entry{}, fmt.Errorf("machine: decode entry: %d commands in %d bytes", count, len(b))
	}
	e.Commands = make([]Command, 0, count)
	for range count {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return Entry{}, fmt.Errorf("machine: decode command %d: %w", len(e.Commands), errTruncated)
		}
		// One string per command: its names and labels share it, and nothing else keeps it alive.
		c, err := decodeCommand(string(b[n : n+int(size)]))
		if err != nil {
			return Entry{}, fmt.Errorf("machine: decode command %d: %w", len(e.Commands), err)
		}
		e.Commands = append(e.Commands, c)
		b = b[n+int(size):]
	}
	if len(b) != 0 {
		return Entry{}, fmt.Errorf("machine: decode entry: %d bytes too many", len(b))
	}
	return e, nil
}

func decodeCommand(s string) (Command, error) {
	d := &decoder{s: s}
	kind := d.byte()
	c, err := decodeBody(d, kind)
	if err != nil {
		return nil, err
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return c, nil
}

// ErrNewer is returned for an entry, a snapshot or a backup that only a newer build can read.
var ErrNewer = errors.New("this node is older than its cluster: upgrade it")

func decodeBody(d *decoder, kind byte) (Command, error) {
	switch kind {
	case kindOpenSession:
		return decodeOpenSession(d, false), nil
	case kindCloseSession:
		return CloseSession{d.bytes16()}, nil
	case kindAcquire:
		return decodeAcquire(d), nil
	case kindCancel:
		return Cancel{d.bytes16(), d.uint(), d.uint(), d.uint()}, nil
	case kindRelease:
		return Release{d.bytes16(), d.uint(), Token(d.uint())}, nil
	case kindExpire:
		return decodeExpire(d), nil
	case kindEndWait:
		return EndWait{d.uint(), decodeClaims(d)}, nil
	case kindEndDelay:
		return EndDelay{d.uint(), decodeClaims(d)}, nil
	case kindRevoke:
		return Revoke{d.claimID(), Token(d.uint()), d.text(), d.text(), d.bool()}, nil
	case kindSetTokenFloor:
		return SetTokenFloor{Token(d.uint())}, nil
	case kindSetLimits:
		return SetLimits{decodeLimits(d)}, nil
	case kindCheckHash:
		return CheckHash{d.uint(), d.uint()}, nil
	case kindEndRecovery:
		return EndRecovery{d.uint()}, nil
	case kindSetMember:
		return SetMember{decodeMember(d)}, nil
	case kindRemoveMember:
		return RemoveMember{d.uint()}, nil
	case kindSetBirth:
		return SetBirth{d.bytes16()}, nil
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

func decodeOpenSession(d *decoder, hashed bool) OpenSession {
	c := OpenSession{TTL: Millis(d.uint()), Hashed: hashed}
	copy(c.Random[:], d.raw(8))
	c.Secret = d.bytes16()
	c.ClientNumbered = d.bool()
	c.Metadata = d.labels()
	return c
}

func decodeAcquire(d *decoder) Acquire {
	return Acquire{
		Session: d.bytes16(),
		Seq:     d.uint(),
		Nonce:   d.text(),
		Floor:   d.uint(),
		Seen:    d.uint(),
		Spec:    decodeSpec(d),
	}
}

func decodeSpec(d *decoder) Spec {
	var s Spec
	if n := d.count(1); n > 0 {
		s.Names = make([]string, n)
		for i := range s.Names {
			s.Names[i] = d.text()
		}
	}
	s.Mode = Mode(d.byte())
	s.Weight = d.uint32()
	s.Capacity = d.uint32()
	s.HasWait = d.bool()
	s.Wait = Millis(d.uint())
	s.LockDelay = Millis(d.uint())
	s.Metadata = d.labels()
	return s
}

func decodeExpire(d *decoder) Expire {
	c := Expire{Term: d.uint()}
	if n := d.count(16); n > 0 {
		c.Sessions = make([]SessionID, n)
		for i := range c.Sessions {
			c.Sessions[i] = d.bytes16()
		}
	}
	return c
}

func decodeClaims(d *decoder) []ClaimID {
	n := d.count(17)
	if n == 0 {
		return nil
	}
	ids := make([]ClaimID, n)
	for i := range ids {
		ids[i] = d.claimID()
	}
	return ids
}

// decodeLimits reads the feature level, which determines the fields that follow.
func decodeLimits(d *decoder) (l Limits) {
	l.FeatureLevel = d.uint32()
	if l.FeatureLevel > FeatureLevel {
		d.fail(fmt.Errorf("%w: feature level %d, this build supports %d", ErrNewer, l.FeatureLevel, FeatureLevel))
	}
	for _, f := range l.fields()[1:] {
		*f.value = d.uint32()
	}
	return l
}
