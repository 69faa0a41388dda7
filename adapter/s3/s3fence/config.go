package s3fence

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// DefaultPrefix begins all keys unless [Config] says otherwise.
const DefaultPrefix = "lockstep-fence"

// maxPrefixBytes leaves room for the name of a resource in a key, which S3 limits to 1024 bytes.
const maxPrefixBytes = 200

// Config adjusts a [Guard]. The zero value is ready for use.
type Config struct {
	// Prefix is what all keys begin with; a "/" follows. All programs that write the same resources
	// have the same one. Nothing else may be kept below it. 1 to 200 bytes of what is allowed in
	// the name of a resource: see [CheckResource]. Default: [DefaultPrefix].
	Prefix string
	// Observer is told of each decision. Default: nobody.
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
