package command

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// errTruncated is the usual result of decoding bytes that we did not write.
var errTruncated = errors.New("truncated")

// AppendBool appends one byte: 0 or 1.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendText appends the length of s and its bytes.
func AppendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// AppendLabels appends the number of labels, and the key and the value of each.
func AppendLabels(b []byte, labels []Label) []byte {
	b = binary.AppendUvarint(b, uint64(len(labels)))
	for _, l := range labels {
		b = AppendText(b, l.Key)
		b = AppendText(b, l.Value)
	}
	return b
}

// AppendClaimID appends the session's 16 bytes and the number of the claim.
func AppendClaimID(b []byte, id ClaimID) []byte {
	b = append(b, id.Session[:]...)
	return binary.AppendUvarint(b, id.Seq)
}

// AppendSpec appends all fields of s, in order.
func AppendSpec(b []byte, s *Spec) []byte {
	b = binary.AppendUvarint(b, uint64(len(s.Names)))
	for _, name := range s.Names {
		b = AppendText(b, name)
	}
	b = append(b, byte(s.Mode))
	b = binary.AppendUvarint(b, uint64(s.Weight))
	b = binary.AppendUvarint(b, uint64(s.Capacity))
	b = AppendBool(b, s.HasWait)
	b = binary.AppendUvarint(b, uint64(s.Wait))
	b = binary.AppendUvarint(b, uint64(s.LockDelay))
	return AppendLabels(b, s.Metadata)
}

// AppendLimits appends the feature level of l and the limits that exist at that level.
func AppendLimits(b []byte, l *Limits) []byte {
	for _, v := range l.fields() {
		b = binary.AppendUvarint(b, uint64(*v.value))
	}
	return b
}

// AppendMember appends all fields of m, in the order of ID, Name, Address, Instance, Founder,
// Removed.
func AppendMember(b []byte, m *Member) []byte {
	b = binary.AppendUvarint(b, m.ID)
	b = AppendText(AppendText(b, m.Name), m.Address)
	b = append(b, m.Instance[:]...)
	return AppendBool(AppendBool(b, m.Founder), m.Removed)
}

// A Decoder reads the fields of one record: of a command, or of a part of a snapshot. It reads what
// the Append functions and [binary.AppendUvarint] wrote. The first error sticks; after it, all
// reads return zero values. No length found in the input is trusted: nothing is allocated beyond
// the size of the input. A Decoder may be used by one goroutine at a time.
type Decoder struct {
	s     string
	err   error
	clone bool
}

// NewDecoder returns a decoder of s. The strings that it returns share the memory of s.
func NewDecoder(s string) *Decoder { return &Decoder{s: s} }

// NewCloningDecoder returns a decoder that copies the strings out of s, for records that outlive
// most of their strings.
func NewCloningDecoder(s string) *Decoder { return &Decoder{s: s, clone: true} }

// Err returns the first error so far, or nil.
func (d *Decoder) Err() error { return d.err }

// Fail records an error of the caller's, unless there is one already, and ends the input.
func (d *Decoder) Fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.s = ""
}

// Uint reads an unsigned number of 1 to 10 bytes, the lowest 7 bits first.
func (d *Decoder) Uint() uint64 {
	var v uint64
	for i := 0; i < len(d.s) && i < binary.MaxVarintLen64; i++ {
		c := d.s[i]
		if c < 0x80 {
			if i == binary.MaxVarintLen64-1 && c > 1 {
				break
			}
			d.s = d.s[i+1:]
			return v | uint64(c)<<(7*i)
		}
		v |= uint64(c&0x7f) << (7 * i)
	}
	d.Fail(errTruncated)
	return 0
}

// Uint32 reads a number as Uint does. More than 32 bits are an error.
func (d *Decoder) Uint32() uint32 {
	v := d.Uint()
	if v > 1<<32-1 {
		d.Fail(fmt.Errorf("%d does not fit in 32 bits", v))
		return 0
	}
	return uint32(v)
}

// Byte reads one byte.
func (d *Decoder) Byte() byte {
	if d.s == "" {
		d.Fail(errTruncated)
		return 0
	}
	c := d.s[0]
	d.s = d.s[1:]
	return c
}

// Bool reads a byte that is 0 or 1.
func (d *Decoder) Bool() bool {
	c := d.Byte()
	if c > 1 {
		d.Fail(fmt.Errorf("%d is not a boolean", c))
	}
	return c == 1
}

// raw takes n bytes.
func (d *Decoder) raw(n uint64) string {
	if n > uint64(len(d.s)) {
		d.Fail(errTruncated)
		return ""
	}
	s := d.s[:n]
	d.s = d.s[n:]
	return s
}

// Text reads a length and so many bytes.
func (d *Decoder) Text() string {
	s := d.raw(d.Uint())
	if d.clone {
		return strings.Clone(s)
	}
	return s
}

// Bytes16 reads 16 bytes: an id or a secret.
func (d *Decoder) Bytes16() (b [16]byte) {
	copy(b[:], d.raw(16))
	return b
}

// Count reads the length of a list whose elements have at least size bytes each.
func (d *Decoder) Count(size int) int {
	n := d.Uint()
	if n > uint64(len(d.s)/size) {
		d.Fail(errTruncated)
		return 0
	}
	return int(n)
}

// Labels reads what [AppendLabels] wrote; nil for none.
func (d *Decoder) Labels() []Label {
	n := d.Count(2)
	if n == 0 {
		return nil
	}
	labels := make([]Label, n)
	for i := range labels {
		labels[i] = Label{d.Text(), d.Text()}
	}
	return labels
}

// ClaimID reads what [AppendClaimID] wrote.
func (d *Decoder) ClaimID() ClaimID { return ClaimID{d.Bytes16(), d.Uint()} }

// Spec reads what [AppendSpec] wrote. It does not check the rules of a spec.
func (d *Decoder) Spec() (s Spec) {
	if n := d.Count(1); n > 0 {
		s.Names = make([]string, n)
		for i := range s.Names {
			s.Names[i] = d.Text()
		}
	}
	s.Mode = Mode(d.Byte())
	s.Weight = d.Uint32()
	s.Capacity = d.Uint32()
	s.HasWait = d.Bool()
	s.Wait = Millis(d.Uint())
	s.LockDelay = Millis(d.Uint())
	s.Metadata = d.Labels()
	return s
}

// Limits reads what [AppendLimits] wrote: the feature level determines the fields that follow. A
// level that this build does not know is an [ErrNewer]. It does not check the bounds.
func (d *Decoder) Limits() (l Limits) {
	l.FeatureLevel = d.Uint32()
	if l.FeatureLevel > FeatureLevel {
		d.Fail(fmt.Errorf("%w: feature level %d, this build supports %d", ErrNewer, l.FeatureLevel, FeatureLevel))
	}
	for _, f := range l.fields()[1:] {
		*f.value = d.Uint32()
	}
	return l
}

// Member reads what [AppendMember] wrote.
func (d *Decoder) Member() Member {
	return Member{
		ID: d.Uint(), Name: d.Text(), Address: d.Text(), Instance: d.Bytes16(), Founder: d.Bool(), Removed: d.Bool(),
	}
}

// End returns the first error; leftover bytes are an error too.
func (d *Decoder) End() error {
	if d.err == nil && d.s != "" {
		return fmt.Errorf("%d bytes too many", len(d.s))
	}
	return d.err
}
