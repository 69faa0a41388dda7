package etcdfence

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// DefaultPrefix is the default prefix of all keys. It differs from that of package etcdlock, which
// must not share its keys.
const DefaultPrefix = "lockstep-fence"

// maxPrefixBytes keeps keys readable in a listing.
const maxPrefixBytes = 256

// Config adjusts a [Guard]. The zero value is ready for use.
type Config struct {
	// Prefix starts all keys, followed by "/". All programs that write the same resources must use
	// the same one. Nothing else may be stored below it. 1 to 256 bytes. Default: [DefaultPrefix].
	Prefix string
	// Observer is notified of each decision. Default: none.
	Observer fence.Observer
}

func (c Config) withDefaults() (Config, error) {
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	broken := func(rule string) error {
		return &lockstep.InvalidError{Field: "prefix", Value: lockstep.Excerpt(c.Prefix), Rule: rule}
	}
	switch {
	case len(c.Prefix) > maxPrefixBytes:
		return c, broken(fmt.Sprintf("is %d bytes long, the limit is %d", len(c.Prefix), maxPrefixBytes))
	case strings.HasSuffix(c.Prefix, "/"):
		return c, broken(`must not end with "/", which is added`)
	}
	return c, nil
}
