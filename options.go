package lockstep

import (
	"maps"
	"slices"
	"time"
)

// Mode is the kind of a claim.
type Mode int

const (
	// Exclusive claims exclude all other holders.
	Exclusive Mode = iota
	// Shared claims hold a lock together with other shared claims.
	Shared
	// Permits claims hold some of the n permits of a semaphore.
	Permits
)

func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	case Permits:
		return "permits"
	default:
		return "unknown"
	}
}

// An AcquireConfig holds the resolved options of one call of [Locker.Acquire]. It is for backend
// authors: see [ResolveAcquire].
type AcquireConfig struct {
	// Names are the names of the claim, the first argument of Acquire first.
	Names []string
	Mode  Mode
	// Weight permits out of Capacity are claimed; both are zero in other modes.
	Weight, Capacity int
	// Wait bounds the time in the queue if HasWait is set; zero means try once.
	Wait    time.Duration
	HasWait bool
	// LockDelay keeps the names closed after the holder's session expires.
	LockDelay time.Duration
	// MaxHold ends the lock after it has been held this long; zero means no limit.
	MaxHold  time.Duration
	Metadata map[string]string
}

// Try reports whether the claim must be granted at once or not at all.
func (c AcquireConfig) Try() bool { return c.HasWait && c.Wait == 0 }

// An AcquireOption adjusts one call of [Locker.Acquire].
type AcquireOption interface{ apply(*AcquireConfig) }

type optionFunc func(*AcquireConfig)

func (f optionFunc) apply(c *AcquireConfig) { f(c) }

// WithWait bounds the time in the queue, from 0 to [MaxWait]. Zero means: try once, without
// waiting. Default: wait until ctx is done.
func WithWait(d time.Duration) AcquireOption {
	return optionFunc(func(c *AcquireConfig) { c.Wait, c.HasWait = d, true })
}

// WithShared requests to share the lock with other shared holders. Default: exclusive.
func WithShared() AcquireOption {
	return optionFunc(func(c *AcquireConfig) { c.Mode = Shared })
}

// WithPermits requests k of the n permits of a semaphore, 1 <= k <= n <= [MaxPermits]. All claims
// of a name must agree on n while it is in use. Permits cannot be guarded: concurrent holders have
// no order, and their token is zero.
func WithPermits(k, n int) AcquireOption {
	return optionFunc(func(c *AcquireConfig) { c.Mode, c.Weight, c.Capacity = Permits, k, n })
}

// WithAlso adds names to the claim, up to [MaxNames] in all: it is granted when all of them are
// available at once. The names must differ and share the first segment, and the claim must be
// exclusive. While it waits for one of its names, its other names are closed to later claims.
func WithAlso(names ...string) AcquireOption {
	names = slices.Clone(names)
	return optionFunc(func(c *AcquireConfig) { c.Names = append(c.Names, names...) })
}

// WithLockDelay keeps the lock closed for d, 0 to [MaxLockDelay], and the backend's grace, after
// its holder's session expires. A release frees it at once. Default: 0.
func WithLockDelay(d time.Duration) AcquireOption {
	return optionFunc(func(c *AcquireConfig) { c.LockDelay = d })
}

// WithMaxHold ends the lock after it has been held for d, at least one second: its context is
// cancelled with [MaxHoldReached] and the lock is released. Default: no limit.
func WithMaxHold(d time.Duration) AcquireOption {
	return optionFunc(func(c *AcquireConfig) { c.MaxHold = d })
}

// WithMetadata attaches labels that others see with the holder or waiter. Keys and values are at
// most [MaxMetadataBytes] together.
func WithMetadata(labels map[string]string) AcquireOption {
	labels = maps.Clone(labels)
	return optionFunc(func(c *AcquireConfig) {
		if c.Metadata == nil {
			c.Metadata = make(map[string]string, len(labels))
		}
		maps.Copy(c.Metadata, labels)
	})
}

// ResolveAcquire is for backend authors. It applies the options of a call and checks the result. It
// returns [ErrInvalid] if a name or option breaks a rule, and [ErrUnsupported] if the backend
// cannot honour an option.
func ResolveAcquire(caps Capabilities, name string, opts ...AcquireOption) (AcquireConfig, error) {
	c := AcquireConfig{Names: []string{name}}
	for _, o := range opts {
		o.apply(&c)
	}
	if err := c.validate(); err != nil {
		return AcquireConfig{}, err
	}
	if err := c.checkSupport(caps); err != nil {
		return AcquireConfig{}, err
	}
	return c, nil
}
