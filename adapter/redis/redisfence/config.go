package redisfence

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// DefaultKeyPrefix is the default prefix of all keys.
const DefaultKeyPrefix = "lockstep-fence"

// maxKeyPrefix bounds the prefix, in bytes. Every key repeats it.
const maxKeyPrefix = 64

// Config adjusts a [Guard]. The zero value is ready for use.
type Config struct {
	// KeyPrefix starts all keys. All programs that write the same resources must use the same one,
	// and the same logical database. 1 to 64 printable ASCII characters, no spaces or braces.
	// Default: [DefaultKeyPrefix].
	KeyPrefix string
	// Observer is notified of each decision. Default: none.
	Observer fence.Observer
}

func (c Config) withDefaults() (Config, error) {
	c.KeyPrefix = cmp.Or(c.KeyPrefix, DefaultKeyPrefix)
	return c, checkKeyPrefix(c.KeyPrefix)
}

// checkKeyPrefix refuses braces, which would change the slot of the keys in a Cluster.
func checkKeyPrefix(prefix string) error {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '{' || r == '}' }
	if len(prefix) > maxKeyPrefix || strings.ContainsFunc(prefix, odd) {
		return &lockstep.InvalidError{
			Field: "key prefix", Value: lockstep.Excerpt(prefix),
			Rule: fmt.Sprintf("must be 1 to %d printable ASCII characters without spaces and braces", maxKeyPrefix),
		}
	}
	return nil
}
