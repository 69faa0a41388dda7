package s3fence

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// DefaultPrefix is the default prefix of all keys.
const DefaultPrefix = "lockstep-fence"

// maxPrefixBytes leaves room for the name of a resource in a key, which S3 limits to 1024 bytes.
const maxPrefixBytes = 200

// Config adjusts a [Guard]. The zero value is ready for use.
type Config struct {
	// Prefix starts all keys, followed by "/". All programs that write the same resources must use
	// the same one. Nothing else may be stored below it. 1 to 200 bytes, under the rules for
	// resource names: see [CheckResource]. Default: [DefaultPrefix].
	Prefix string
	// Observer is notified of each decision. Default: none.
	Observer fence.Observer
}

func (c Config) withDefaults() (Config, error) {
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	rule := brokenPathRule(c.Prefix)
	if len(c.Prefix) > maxPrefixBytes {
		rule = fmt.Sprintf("is %d bytes long, the limit is %d", len(c.Prefix), maxPrefixBytes)
	}
	if strings.HasSuffix(c.Prefix, "/") {
		rule = `must not end with "/", which is added`
	}
	if rule != "" {
		return c, &lockstep.InvalidError{Field: "prefix", Value: lockstep.Excerpt(c.Prefix), Rule: rule}
	}
	return c, nil
}
