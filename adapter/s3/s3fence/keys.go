package s3fence

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// MaxResourceBytes bounds the name of a resource: S3 limits a key to 1024 bytes, and our longest
// keys have 200 bytes of prefix and 51 bytes that identify the write.
const MaxResourceBytes = 768

// The last parts of the keys of a resource. They start with a character that no part of a name
// starts with, so that no resource is nested in another.
const (
	manifestName = "_manifest"
	dataName     = "_data"
)

// keys are the keys of one resource.
type keys struct {
	manifest string
	data     string // the prefix of its data keys
}

func keysOf(prefix, resource string) keys {
	base := prefix + "/" + resource + "/"
	return keys{manifest: base + manifestName, data: base + dataName + "/"}
}

// digits is the length of a token in a key, that of [lockstep.MaxToken].
const digits = 16

// dataKey is the key of the data of one write.
func (k keys) dataKey(token lockstep.Token, nonce string) string {
	return fmt.Sprintf("%s%0*d-%s", k.data, digits, uint64(token), nonce)
}

// token returns the token of the write with this data key; ok is false if it is not a data key of
// the resource.
func (k keys) token(key string) (token lockstep.Token, ok bool) {
	rest, ours := strings.CutPrefix(key, k.data)
	number, nonce, dash := strings.Cut(rest, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	token = lockstep.Token(n)
	ok = ours && dash && err == nil && nonce != "" && !strings.Contains(nonce, "/") && token > 0 && token <= lockstep.MaxToken && len(number) == digits
	return token, ok
}

// CheckResource returns a [*lockstep.InvalidError] with the rule that the name of a resource
// breaks, or nil. A name is 1 to [MaxResourceBytes] bytes of UTF-8 without control characters:
// parts separated by "/", none of which is empty, "." or "..", or starts with "_". Such names
// survive proxies that clean paths and stores that keep keys as files.
func CheckResource(name string) error {
	if err := fence.CheckResource(name); err != nil {
		return err
	}
	rule := brokenPathRule(name)
	if len(name) > MaxResourceBytes {
		rule = fmt.Sprintf("is %d bytes long, the limit is %d", len(name), MaxResourceBytes)
	}
	if rule != "" {
		return &lockstep.InvalidError{Field: "resource", Value: lockstep.Excerpt(name), Rule: rule}
	}
	return nil
}

// brokenPathRule is the rule for parts of keys that text breaks, or "".
func brokenPathRule(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return "must be valid UTF-8 without control characters"
	}
	for part := range strings.SplitSeq(text, "/") {
		if part == "" || part == "." || part == ".." || part[0] == '_' {
			return `must be parts with one "/" between them, none of them "." or "..", and none beginning with "_"`
		}
	}
	return ""
}
