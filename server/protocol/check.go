package protocol

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
)

// broken returns the error for a field that breaks a rule.
func broken(reason pb.Reason, field, format string, args ...any) *pb.Error {
	return &pb.Error{Reason: reason, Field: field, Message: field + ": " + fmt.Sprintf(format, args...)}
}

func invalid(field, format string, args ...any) *pb.Error {
	return broken(pb.Reason_REASON_INVALID_ARGUMENT, field, format, args...)
}

func outOfRange(field string, got, lowest, highest uint64, unit string) *pb.Error {
	return broken(pb.Reason_REASON_OUT_OF_RANGE, field, "is %d%s, must be %d%s to %d%s", got, unit, lowest, unit, highest, unit)
}

// unknownSession is the answer for every session that the service does not know, and for anything
// that is not even a session id.
func unknownSession() *pb.Error {
	row := refusedByMachine[command.SessionUnknown]
	return &pb.Error{Reason: row.reason, Field: row.field, Message: row.message}
}

func checkName(field, name string) *pb.Error {
	err := lockstep.CheckName(name)
	if err == nil && !norm.NFC.IsNormalString(name) {
		return broken(pb.Reason_REASON_INVALID_NAME, field, "%s must be in Unicode normalization form C (NFC)", lockstep.Excerpt(name))
	}
	if err == nil {
		return nil
	}
	reason := pb.Reason_REASON_INVALID_NAME
	if isReserved(name) {
		reason = pb.Reason_REASON_RESERVED_NAME
	}
	return explain(reason, field, err)
}

// isReserved distinguishes a name that is refused because of its namespace from one that would be
// refused in any namespace.
func isReserved(name string) bool {
	return strings.HasPrefix(name, "_") && lockstep.CheckName("x"+name[1:]) == nil
}

// explain converts an error from a check of package lockstep.
func explain(reason pb.Reason, field string, err error) *pb.Error {
	e, ok := errors.AsType[*lockstep.InvalidError](err)
	if !ok {
		panic(fmt.Sprintf("protocol: check of %s gave %T: %v", field, err, err))
	}
	if e.Value == "" {
		return broken(reason, field, "%s", e.Rule)
	}
	return broken(reason, field, "%s %s", e.Value, e.Rule)
}

func checkNames(names []string, mode command.Mode) *pb.Error {
	const field = "spec.names"
	switch {
	case len(names) == 0:
		return invalid(field, "must have 1 to %d names", lockstep.MaxNames)
	case len(names) > lockstep.MaxNames:
		return invalid(field, "has %d names, the limit is %d", len(names), lockstep.MaxNames)
	case len(names) > 1 && mode != command.Exclusive:
		return invalid(field, "has %d names: a claim on several must be exclusive", len(names))
	}
	for i, name := range names {
		if err := checkName(field, name); err != nil {
			return err
		}
		if slices.Contains(names[:i], name) {
			return invalid(field, "%s is repeated: names must differ", lockstep.Excerpt(name))
		}
		if namespace(name) != namespace(names[0]) {
			return invalid(field, "%s must share the first segment %s", lockstep.Excerpt(name), lockstep.Excerpt(namespace(names[0])))
		}
	}
	return nil
}

func namespace(name string) string {
	first, _, _ := strings.Cut(name, "/")
	return first
}

// checkPrefix accepts everything that a name may begin with, and the empty prefix.
func checkPrefix(prefix string) *pb.Error {
	if len(prefix) > lockstep.MaxNameBytes {
		return invalid("prefix", "is %d bytes long, the limit is %d", len(prefix), lockstep.MaxNameBytes)
	}
	if !printable(prefix) {
		return invalid("prefix", "%s must be printable UTF-8", lockstep.Excerpt(prefix))
	}
	if !norm.NFC.IsNormalString(prefix) { // no name has this prefix: a prefix of a string in NFC is in NFC
		return invalid("prefix", "%s must be in Unicode normalization form C (NFC)", lockstep.Excerpt(prefix))
	}
	return nil
}

// checkText checks a text that people will read on their terminals.
func checkText(field, text string, limit int) *pb.Error {
	if len(text) > limit {
		return invalid(field, "is %d bytes long, the limit is %d", len(text), limit)
	}
	if !printable(text) {
		return invalid(field, "%s must be printable UTF-8", lockstep.Excerpt(text))
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// metadata checks labels and sorts them by key, as the machine requires.
func metadata(field string, m map[string]string) ([]command.Label, *pb.Error) {
	if len(m) == 0 {
		return nil, nil
	}
	if err := lockstep.CheckMetadata(m); err != nil {
		return nil, explain(pb.Reason_REASON_INVALID_METADATA, field, err)
	}
	ls := make([]command.Label, 0, len(m))
	for key, value := range m { // in any order: they are sorted below
		ls = append(ls, command.Label{Key: key, Value: value})
	}
	slices.SortFunc(ls, func(a, b command.Label) int { return cmp.Compare(a.Key, b.Key) })
	return ls, nil
}

// checkTTL compares in milliseconds, before any conversion could overflow.
func checkTTL(ms uint64) (command.Millis, *pb.Error) {
	const field = "ttl_ms"
	if ms == 0 {
		return 0, invalid(field, "must not be 0")
	}
	if lowest, highest := millis(lockstep.MinTTL), millis(lockstep.MaxTTL); ms < lowest || ms > highest {
		return 0, outOfRange(field, ms, lowest, highest, " ms")
	}
	return command.Millis(ms), nil
}

func millis(d time.Duration) uint64 { return uint64(d.Milliseconds()) }

// limit checks the requested size of an answer. Zero means the default.
func limit(field string, asked uint32, highest int) (int, *pb.Error) {
	switch {
	case asked == 0:
		return DefaultPage, nil
	case uint64(asked) > uint64(highest):
		return 0, outOfRange(field, uint64(asked), 1, uint64(highest), "")
	default:
		return int(asked), nil
	}
}

func session(text string) (command.SessionID, *pb.Error) {
	id, err := command.ParseSessionID(text)
	if err != nil || id == (command.SessionID{}) {
		return command.SessionID{}, unknownSession()
	}
	return id, nil
}

func secret(b []byte) (command.Secret, *pb.Error) {
	var s command.Secret
	if len(b) != len(s) {
		return s, unknownSession()
	}
	copy(s[:], b)
	return s, nil
}

// fill draws random bytes. The sources in use never fail; one that fails must not yield a guessable
// secret.
func fill(rnd io.Reader, b []byte) {
	if _, err := io.ReadFull(rnd, b); err != nil {
		panic(fmt.Sprintf("protocol: no randomness: %v", err))
	}
}

// spec checks what a claim asks for.
func spec(s *pb.ClaimSpec) (command.Spec, *pb.Error) {
	out := command.Spec{Names: s.GetNames()}
	var err *pb.Error
	if out.Mode, err = mode(s); err != nil {
		return out, err
	}
	out.Weight, out.Capacity = s.GetWeight(), s.GetCapacity()
	if err := checkNames(out.Names, out.Mode); err != nil {
		return out, err
	}
	if s.WaitMs != nil {
		if highest := millis(lockstep.MaxWait); s.GetWaitMs() > highest {
			return out, outOfRange("spec.wait_ms", s.GetWaitMs(), 0, highest, " ms")
		}
		out.HasWait, out.Wait = true, command.Millis(s.GetWaitMs())
	}
	if highest := millis(lockstep.MaxLockDelay); s.GetLockDelayMs() > highest {
		return out, outOfRange("spec.lock_delay_ms", s.GetLockDelayMs(), 0, highest, " ms")
	}
	out.LockDelay = command.Millis(s.GetLockDelayMs())
	out.Metadata, err = metadata("spec.metadata", s.GetMetadata())
	return out, err
}

// mode checks the mode, and that permits are requested only in the mode that has them.
func mode(s *pb.ClaimSpec) (command.Mode, *pb.Error) {
	weight, capacity := s.GetWeight(), s.GetCapacity()
	switch m := s.GetMode(); m {
	case pb.Mode_MODE_EXCLUSIVE, pb.Mode_MODE_SHARED:
		if weight != 0 || capacity != 0 {
			return 0, invalid("spec.weight", "weight %d of capacity %d requires MODE_PERMITS", weight, capacity)
		}
		return command.Mode(m), nil
	case pb.Mode_MODE_PERMITS:
		if weight < 1 || weight > capacity || capacity > lockstep.MaxPermits {
			return 0, invalid("spec.weight", "is %d of capacity %d, must be 1 <= weight <= capacity <= %d", weight, capacity, lockstep.MaxPermits)
		}
		return command.Permits, nil
	default:
		return 0, invalid("spec.mode", "%d is not a mode", m)
	}
}
