package election

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// IdentityKey is the key of the identity in the metadata of a candidate's claim, where
// observers find it.
const IdentityKey = "identity"

// JitterFactor bounds the pause after an error: it is drawn uniformly from RetryPeriod to
// JitterFactor x RetryPeriod, so that candidates do not retry in step.
const JitterFactor = 1.2

// MinRetryPeriod is the shortest [Config.RetryPeriod].
const MinRetryPeriod = 10 * time.Millisecond

// MaxIdentityBytes bounds [Config.Identity].
const MaxIdentityBytes = 256

// A Config configures a [Candidate]. The zero value is ready for use. TTL below means the TTL in
// the Locker's capabilities, as negotiated with the backend.
type Config struct {
	// RenewDeadline is how long the leader continues without a confirmed renewal before it steps
	// down, counted from when the last confirmed one was sent. Default: 2/3 of the TTL, or less if
	// Drain needs it. It must exceed 2/5 of the TTL, since the renewals of a healthy leader are
	// TTL/3 apart, and JitterFactor x RetryPeriod; RenewDeadline + Drain + [lease.Margin] must be
	// at most the TTL.
	RenewDeadline time.Duration

	// RetryPeriod is the pause before campaigning again after a backend error, and the shortest
	// time from the start of a term to the next campaign. Default: 2/15 of the TTL, but at least
	// [MinRetryPeriod], which is also the lowest value allowed.
	RetryPeriod time.Duration

	// Drain is how long the body may take to return once its context is done. If the backend cannot
	// be reached, the lease outlasts it. Default: the time that RenewDeadline leaves, TTL - Margin
	// - RenewDeadline. It must be shorter than 3/5 of the TTL minus the Margin.
	Drain time.Duration

	// Identity is the name under which others see the leader: 1 to [MaxIdentityBytes] bytes of
	// printable UTF-8. It should be unique among the candidates; only OnNewLeader relies on that.
	// Default: the host name, "_" and 26 random characters.
	Identity string

	// Metadata holds further labels of the claim, within the limits of [lockstep.WithMetadata]. It
	// must not contain the key [IdentityKey].
	Metadata map[string]string

	// OnNewLeader is called with the identity of each leader that differs from the last one
	// reported, including the first one seen and this candidate. It is not called when there is no
	// leader: see [Candidate.Observe]. Calls come one at a time, on a goroutine of Run that runs
	// concurrently with the body. A call that does not return prevents Run from returning, but
	// nothing else. On a backend that cannot watch, the lock is inspected about every RetryPeriod,
	// so a short term may be missed; on one that cannot inspect either, [New] refuses OnNewLeader.
	// Default: none.
	OnNewLeader func(identity string)

	// Cooldown is the shortest time from the release of a lock to the next campaign, 0 to
	// [lockstep.MaxWait], lengthened at random by up to JitterFactor. It also holds for a term
	// that was lost, and ends when Run's ctx ends. [Candidate.StepDown] may ask for more.
	// Default: 0. A candidate whose lease ended then stands again at once.
	Cooldown time.Duration

	// Retry is called after an error of Acquire, and decides whether the candidate campaigns again
	// after RetryPeriod; if not, Run returns the error. again is what the candidate would do by
	// itself: false for the errors that would occur on every retry, see [Candidate.Run]. It is
	// called on Run's goroutine, and not once Run's ctx is done. Default: a function that returns
	// again.
	Retry func(err error, again bool) bool

	// Logger receives the start and end of each term, and the errors after which the candidate
	// campaigns again. Default: [slog.DiscardHandler].
	Logger *slog.Logger
}

// resolve fills in defaults for a lease of this ttl, and returns the first rule that is broken. It
// rejects a Drain that is too long before deriving RenewDeadline from it.
func (c Config) resolve(ttl time.Duration) (Config, error) {
	if err := c.checkDrain(ttl); err != nil {
		return Config{}, err
	}
	full := c.withDefaults(ttl)
	if full.Drain <= 0 || full.RenewDeadline+full.Drain > longestDeadline(ttl) || full.RenewDeadline <= shortestDeadline(ttl) {
		return Config{}, c.badDeadline(ttl)
	}
	if err := full.checkRetry(); err != nil {
		return Config{}, err
	}
	if err := checkCooldown(full.Cooldown); err != nil {
		return Config{}, err
	}
	if err := full.checkLabels(); err != nil {
		return Config{}, err
	}
	return full, nil
}

func (c Config) withDefaults(ttl time.Duration) Config {
	if c.RenewDeadline == 0 {
		c.RenewDeadline = min(ttl*2/3, longestDeadline(ttl)-c.Drain)
	}
	if c.Drain == 0 {
		c.Drain = longestDeadline(ttl) - c.RenewDeadline
	}
	if c.RetryPeriod == 0 {
		c.RetryPeriod = max(ttl*2/15, MinRetryPeriod)
	}
	if c.Identity == "" {
		c.Identity = defaultIdentity()
	}
	if c.Retry == nil {
		c.Retry = func(_ error, again bool) bool { return again }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Metadata = maps.Clone(c.Metadata)
	return c
}

// defaultIdentity distinguishes processes on one host, and candidates in one process.
func defaultIdentity() string {
	host, err := os.Hostname()
	if err != nil { // the random part is what makes it unique
		host = "unknown"
	}
	return host + "_" + rand.Text()
}

// longestDeadline is how long after a renewal the holder trusts its lease.
func longestDeadline(ttl time.Duration) time.Duration { return ttl - lease.Margin(ttl) }

// shortestDeadline leaves some slack for the renewals of a healthy leader. It is JitterFactor x
// [lease.Interval].
func shortestDeadline(ttl time.Duration) time.Duration { return ttl * 2 / 5 }

// withJitter lengthens d by draw x (JitterFactor - 1), for a draw from 0 to 1.
func withJitter(d time.Duration, draw float64) time.Duration {
	return d + time.Duration(draw*(JitterFactor-1)*float64(d))
}

// checkDrain checks the requested Drain; zero means the default.
func (c Config) checkDrain(ttl time.Duration) error {
	limit := longestDeadline(ttl) - shortestDeadline(ttl)
	if c.Drain >= 0 && c.Drain < limit {
		return nil
	}
	return &lockstep.InvalidError{
		Field: "drain",
		Value: c.Drain.String(),
		Rule: fmt.Sprintf("must be less than %v: the TTL of %v less the margin of %v and the shortest renew deadline of %v",
			limit, ttl, lease.Margin(ttl), shortestDeadline(ttl)),
	}
}

func (c Config) badDeadline(ttl time.Duration) error {
	return &lockstep.InvalidError{
		Field: "renew deadline",
		Value: c.RenewDeadline.String(),
		Rule: fmt.Sprintf("must be more than %v, which is %v x the renewal interval, and together with the drain at most %v: the TTL of %v less the margin of %v",
			shortestDeadline(ttl), JitterFactor, longestDeadline(ttl), ttl, lease.Margin(ttl)),
	}
}

func (c Config) checkRetry() error {
	if c.RetryPeriod < MinRetryPeriod || withJitter(c.RetryPeriod, 1) >= c.RenewDeadline {
		return &lockstep.InvalidError{
			Field: "retry period",
			Value: c.RetryPeriod.String(),
			Rule:  fmt.Sprintf("must be at least %v, and %v x it less than the renew deadline of %v", MinRetryPeriod, JitterFactor, c.RenewDeadline),
		}
	}
	return nil
}

func checkCooldown(cooldown time.Duration) error {
	if cooldown < 0 || cooldown > lockstep.MaxWait {
		return &lockstep.InvalidError{Field: "cooldown", Value: cooldown.String(), Rule: fmt.Sprintf("must be 0 to %v", lockstep.MaxWait)}
	}
	return nil
}

func (c Config) checkLabels() error {
	if len(c.Identity) > MaxIdentityBytes {
		return &lockstep.InvalidError{
			Field: "identity",
			Value: lockstep.Excerpt(c.Identity),
			Rule:  fmt.Sprintf("is %d bytes long, the limit is %d", len(c.Identity), MaxIdentityBytes),
		}
	}
	if lockstep.CheckMetadata(map[string]string{IdentityKey: c.Identity}) != nil {
		return &lockstep.InvalidError{Field: "identity", Value: lockstep.Excerpt(c.Identity), Rule: "must be printable UTF-8"}
	}
	if _, taken := c.Metadata[IdentityKey]; taken {
		return &lockstep.InvalidError{Field: "metadata", Value: IdentityKey, Rule: "must not contain the key of the identity: set Identity"}
	}
	return lockstep.CheckMetadata(c.labels())
}

// labels is the metadata of the claim.
func (c Config) labels() map[string]string {
	labels := map[string]string{IdentityKey: c.Identity}
	maps.Copy(labels, c.Metadata)
	return labels
}
