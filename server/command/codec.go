package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// errTruncated is the usual result of decoding bytes that we did not write.
var errTruncated = errors.New("truncated")

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendLabels(b []byte, labels []Label) []byte {
	b = binary.AppendUvarint(b, uint64(len(labels)))
	for _, l := range labels {
		b = appendText(b, l.Key)
		b = appendText(b, l.Value)
	}
	return b
}

func appendClaimID(b []byte, id ClaimID) []byte {
	b = append(b, id.Session[:]...)
	return binary.AppendUvarint(b, id.Seq)
}

// A decoder reads the fields of one record. The first error sticks; after it, all reads return zero
// values. No length found in the input is trusted: nothing is allocated beyond the size of the
// input.
type decoder struct {
	s   string
	err error
	// clone makes the decoder copy the strings out of s, for records that outlive most of their
	// strings. Otherwise they share its memory.
	clone bool
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.s = ""
}

func (d *decoder) uint() uint64 {
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
	d.fail(errTruncated)
	return 0
}

func (d *decoder) uint32() uint32 {
	v := d.uint()
	if v > 1<<32-1 {
		d.fail(fmt.Errorf("%d does not fit in 32 bits", v))
		return 0
	}
	return uint32(v)
}

func (d *decoder) byte() byte {
	if d.s == "" {
		d.fail(errTruncated)
		return 0
	}
	c := d.s[0]
	d.s = d.s[1:]
	return c
}

func (d *decoder) bool() bool {
	c := d.byte()
	if c > 1 {
		d.fail(fmt.Errorf("%d is not a boolean", c))
	}
	return c == 1
}

// raw takes n bytes.
func (d *decoder) raw(n uint64) string {
	if n > uint64(len(d.s)) {
		d.fail(errTruncated)
		return ""
	}
	s := d.s[:n]
	d.s = d.s[n:]
	return s
}

func (d *decoder) text() string {
	s := d.raw(d.uint())
	if d.clone {
		return strings.Clone(s)
	}
	return s
}

func (d *decoder) bytes16() (b [16]byte) {
	copy(b[:], d.raw(16))
	return b
}

// count reads the length of a list whose elements have at least size bytes each.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.s)/size) {
		d.fail(errTruncated)
		return 0
	}
	return int(n)
}

func (d *decoder) labels() []Label {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	labels := make([]Label, n)
	for i := range labels {
		labels[i] = Label{d.text(), d.text()}
	}
	return labels
}

func (d *decoder) claimID() ClaimID { return ClaimID{d.bytes16(), d.uint()} }

// end returns the first error; leftover bytes are an error too.
func (d *decoder) end() error {
	if d.err == nil && d.s != "" {
		return fmt.Errorf("%d bytes too many", len(d.s))
	}
	return d.err
}
