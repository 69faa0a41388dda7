package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// printable returns s unchanged if a terminal shows all of it and interprets none of it, and quoted
// with escapes otherwise.
func printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, unprintable) {
		return s
	}
	return strconv.QuoteToASCII(s)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// oneLine escapes whatever would break the line or control the terminal, and leaves the rest.
func oneLine(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unprintable(r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escapeJSON escapes the unprintable characters that encoding/json leaves alone, such as
// bidirectional overrides. They occur only in strings, so the value stays the same.
func escapeJSON(text []byte) []byte {
	var out []byte
	for _, r := range string(text) {
		if r == '\n' || !unprintable(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
			continue
		}
		out = fmt.Appendf(out, `\u%04x`, r)
	}
	return out
}
