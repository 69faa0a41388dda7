package etcdfence

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// DefaultPrefix begins all keys unless [Config] says otherwise. It is not that of package etcdlock,
// whose keys must be its own.
const DefaultPrefix = "lockstep-fence"

// maxPrefixBytes leaves keys that a person can still read in a listing.
const maxPrefixBytes = 256

// Config adjusts a [Guard]. The zero value is ready for use.
type Config struct {
	// Prefix is what all keys begin with; a "/" follows. All programs that write the same resources
	// have the same one. Nothing else may be kept below it. 1 to 256 bytes. Default:
	// [DefaultPrefix].
	Prefix string
	// Observer is told of each decision. Default: nobody.
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
