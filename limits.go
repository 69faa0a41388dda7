package lockstep

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits on what a caller may ask for, the same on every backend.
const (
	MaxNameBytes     = 512
	MaxNames         = 16   // per claim
	MaxMetadataBytes = 1024 // keys and values together, per claim
	MaxPermits       = 1 << 20

	MinTTL     = time.Second
	MaxTTL     = 300 * time.Second
	DefaultTTL = 10 * time.Second

	MaxWait      = 365 * 24 * time.Hour
	MaxLockDelay = time.Hour
	MinMaxHold   = time.Second
)

// CheckName returns an [*InvalidError] with the first rule that a lock name breaks, or nil.
//
// A name is 1 to 512 bytes of UTF-8. It is split by "/" into segments, none of which is empty, "."
// or "..". Every character is printable according to [unicode.IsPrint], which excludes control
// characters, zero-width characters and bidirectional overrides; a segment neither begins nor ends
// with a space. Names are compared byte for byte: "A" and "a" differ, and so do look-alike letters
// of different scripts. The first segment is the namespace; namespaces that begin with "_" are
// reserved. The service also requires names in Unicode form NFC.
// Other backends do not check this: there, two forms of a name are two locks.
func CheckName(name string) error {
	if rule := brokenNameRule(name); rule != "" {
		return &InvalidError{Field: "name", Value: Excerpt(name), Rule: rule}
	}
	return nil
}

func brokenNameRule(name string) string {
	switch {
	case name == "":
		return "must not be empty"
	case len(name) > MaxNameBytes:
		return fmt.Sprintf("is %d bytes long, the limit is %d", len(name), MaxNameBytes)
	case !utf8.ValidString(name):
		return "must be valid UTF-8"
	case name[0] == '_':
		return `namespaces that begin with "_" are reserved`
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Sprintf("must not contain the character %+q", r)
		}
	}
	for segment := range strings.SplitSeq(name, "/") {
		switch {
		case segment == "":
			return `must not begin or end with "/" or contain "//"`
		case segment == "." || segment == "..":
			return `must not contain the segment "." or ".."`
		case segment[0] == ' ' || segment[len(segment)-1] == ' ':
			return "must not have a space at either end of a segment"
		}
	}
	return ""
}

// Excerpt quotes at most the first 64 bytes of s, and escapes everything that a terminal might
// interpret or a reader might not see.
func Excerpt(s string) string {
	const limit = 64
	if len(s) <= limit {
		return strconv.QuoteToASCII(s)
	}
	return strconv.QuoteToASCII(s[:limit]) + "..."
}

// CheckTTL returns an [*InvalidError] if d may not be the TTL of a lock, or nil.
func CheckTTL(d time.Duration) error {
	return checkRange("ttl", d, MinTTL, MaxTTL)
}

func checkRange(field string, d, lowest, highest time.Duration) error {
	if d < lowest || d > highest {
		return &InvalidError{Field: field, Value: d.String(), Rule: fmt.Sprintf("must be %v to %v", lowest, highest)}
	}
	return nil
}

// CheckMetadata returns the first rule that the labels break, or nil: keys are not empty, keys and
// values are printable UTF-8, and all of them together are at most [MaxMetadataBytes].
func CheckMetadata(labels map[string]string) error {
	total := 0
	for key, value := range labels {
		total += len(key) + len(value)
		if key == "" {
			return &InvalidError{Field: "metadata", Rule: "keys must not be empty"}
		}
		if !printable(key) || !printable(value) {
			return &InvalidError{Field: "metadata", Value: Excerpt(key), Rule: "keys and values must be printable UTF-8"}
		}
	}
	if total > MaxMetadataBytes {
		return &InvalidError{Field: "metadata", Rule: fmt.Sprintf("is %d bytes long, the limit is %d", total, MaxMetadataBytes)}
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func quoteName(name string) string {
	if printable(name) && len(name) <= MaxNameBytes {
		return name
	}
	return Excerpt(name)
}

func (c AcquireConfig) validate() error {
	if err := checkNames(c.Names, c.Mode); err != nil {
		return err
	}
	if err := c.checkPermits(); err != nil {
		return err
	}
	if c.HasWait {
		if err := checkRange("wait", c.Wait, 0, MaxWait); err != nil {
			return err
		}
	}
	if err := checkRange("lock delay", c.LockDelay, 0, MaxLockDelay); err != nil {
		return err
	}
	if c.MaxHold != 0 && c.MaxHold < MinMaxHold {
		return &InvalidError{Field: "max hold", Value: c.MaxHold.String(), Rule: fmt.Sprintf("must be at least %v", MinMaxHold)}
	}
	return CheckMetadata(c.Metadata)
}

func checkNames(names []string, mode Mode) error {
	if len(names) > MaxNames {
		return &InvalidError{Field: "names", Value: strconv.Itoa(len(names)), Rule: fmt.Sprintf("a claim has at most %d", MaxNames)}
	}
	for i, name := range names {
		if err := CheckName(name); err != nil {
			return err
		}
		if slices.Contains(names[:i], name) {
			return &InvalidError{Field: "names", Value: Excerpt(name), Rule: "must differ"}
		}
		if namespace(name) != namespace(names[0]) {
			return &InvalidError{Field: "names", Value: Excerpt(name), Rule: "must share the first segment, here " + Excerpt(namespace(names[0]))}
		}
	}
	if len(names) > 1 && mode != Exclusive {
		return &InvalidError{Field: "names", Value: strconv.Itoa(len(names)), Rule: "a claim on several names must be exclusive"}
	}
	return nil
}

func namespace(name string) string {
	first, _, _ := strings.Cut(name, "/")
	return first
}

func (c AcquireConfig) checkPermits() error {
	if c.Mode != Permits {
		return nil
	}
	if c.Weight < 1 || c.Weight > c.Capacity || c.Capacity > MaxPermits {
		return &InvalidError{
			Field: "permits",
			Value: fmt.Sprintf("%d/%d", c.Weight, c.Capacity),
			Rule:  fmt.Sprintf("k of n must satisfy 1 <= k <= n <= %d", MaxPermits),
		}
	}
	return nil
}

func (c AcquireConfig) checkSupport(caps Capabilities) error {
	asked := []struct {
		what     string
		asked    bool
		provided bool
	}{
		{"shared claims", c.Mode == Shared, caps.Shared},
		{"permits", c.Mode == Permits, caps.Permits},
		{"several names", len(c.Names) > 1, caps.Multi},
		{"lock delay", c.LockDelay > 0, caps.LockDelay},
	}
	for _, a := range asked {
		if a.asked && !a.provided {
			return fmt.Errorf("%w: %s has no %s", ErrUnsupported, caps.Backend, a.what)
		}
	}
	return nil
}
