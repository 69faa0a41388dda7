package lockstep_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"testing/quick"
	"time"
	"unicode/utf8"

	"github.com/lockstep-dev/lockstep"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 512)
	for _, test := range []struct {
		what, name string
		ok         bool
	}{
		{"a plain name", "billing/nightly", true},
		{"one segment", "a", true},
		{"512 bytes", long, true},
		{"513 bytes", long + "x", false},
		{"513 bytes in 257 letters", strings.Repeat("я", 256) + "x", false},
		{"a megabyte", strings.Repeat("x", 1<<20), false},
		{"an empty name", "", false},
		{"NUL", "a\x00b", false},
		{"a newline", "a\nb", false},
		{"a tab", "a\tb", false},
		{"an ANSI escape", "a\x1b[31mb", false},
		{"a C1 control", "a\u009bb", false},
		{"DEL", "a\x7fb", false},
		{"invalid UTF-8", "a\xff", false},
		{"an overlong encoding", "a\xc0\xaf", false},
		{"a surrogate", "a\xed\xa0\x80", false},
		{"the parent", "..", false},
		{"the parent inside", "a/../b", false},
		{"the same", "a/./b", false},
		{"three dots", "a/...", true},
		{"an empty segment", "a//b", false},
		{"a leading slash", "/a", false},
		{"a trailing slash", "a/", false},
		{"a slash alone", "/", false},
		{"a leading space", " a", false},
		{"a trailing space", "a ", false},
		{"a trailing space of a segment", "a /b", false},
		{"a space inside", "a b/c d", true},
		{"a no-break space", "a\u00a0b", false},
		{"a zero-width space", "a\u200bb", false},
		{"a zero-width joiner", "a\u200db", false},
		{"an override of direction", "a\u202eb", false},
		{"a byte order mark", "\ufeffa", false},
		{"a line separator", "a\u2028b", false},
		{"a private character", "a\ue000", false},
		{"a Cyrillic letter that looks Latin", "\u0430bc", true},
		{"an emoji", "a/😀", true},
		{"Chinese", "鍵", true},
		{"an option", "--help", true},
		{"a dash", "-", true},
		{"a glob", "*", true},
		{"a format", "%s%n", true},
		{"a shell expansion", "$(x)`y`", true},
		{"SQL", "'; drop table locks; --", true},
		{"backslashes", `a\..\b`, true},
		{"a reserved namespace", "_sys/a", false},
		{"a reserved namespace alone", "_", false},
		{"an underscore elsewhere", "a_/_b", true},
	} {
		t.Run(test.what, func(t *testing.T) {
			err := lockstep.CheckName(test.name)
			if (err == nil) != test.ok {
				t.Fatalf("CheckName(%s) = %v", lockstep.Excerpt(test.name), err)
			}
			if err != nil {
				wantInvalid(t, err, "name")
			}
		})
	}
}

// wantInvalid checks that the error names the field and the rule in one line that is safe to print.
func wantInvalid(t *testing.T, err error, field string) {
	t.Helper()
	invalid, ok := errors.AsType[*lockstep.InvalidError](err)
	if !ok || !errors.Is(err, lockstep.ErrInvalid) {
		t.Fatalf("err = %v, want an InvalidError", err)
	}
	if invalid.Field != field || invalid.Rule == "" {
		t.Errorf("field %q, rule %q, want field %q and a rule", invalid.Field, invalid.Rule, field)
	}
	text := err.Error()
	if len(text) > 512 || !utf8.ValidString(text) {
		t.Errorf("the message has %d bytes", len(text))
	}
	for _, r := range text {
		if r < ' ' || r > '~' {
			t.Errorf("the message holds %U: %q", r, text)
		}
	}
	if !lockstep.SafeToRetry(err) {
		t.Error("an invalid request had no effect, but is not safe to retry")
	}
}

func TestExcerptIsShortAndPrintable(t *testing.T) {
	for give, want := range map[string]string{
		"":                       `""`,
		"a b":                    `"a b"`,
		"\x1b[2J":                `"\x1b[2J"`,
		"ключ":                   `"\u043a\u043b\u044e\u0447"`,
		strings.Repeat("x", 64):  `"` + strings.Repeat("x", 64) + `"`,
		strings.Repeat("x", 65):  `"` + strings.Repeat("x", 64) + `"...`,
		strings.Repeat("я", 100): `"` + strings.Repeat(`\u044f`, 32) + `"...`,
	} {
		if got := lockstep.Excerpt(give); got != want {
			t.Errorf("Excerpt(%q) = %s, want %s", give, got, want)
		}
	}
}

func TestTTLs(t *testing.T) {
	for ttl, ok := range map[time.Duration]bool{
		0: false, -1: false, -time.Hour: false, time.Millisecond: false, time.Second - 1: false,
		time.Second: true, lockstep.DefaultTTL: true, 300 * time.Second: true,
		300*time.Second + 1: false, math.MaxInt64: false, math.MinInt64: false,
	} {
		err := lockstep.CheckTTL(ttl)
		if (err == nil) != ok {
			t.Errorf("CheckTTL(%v) = %v", ttl, err)
		}
		if err != nil {
			wantInvalid(t, err, "ttl")
		}
	}
}

func TestMetadata(t *testing.T) {
	for _, test := range []struct {
		what   string
		labels map[string]string
		ok     bool
	}{
		{"none", nil, true},
		{"plain", map[string]string{"host": "h1", "purpose": "nightly run"}, true},
		{"an empty value", map[string]string{"k": ""}, true},
		{"an empty key", map[string]string{"": "v"}, false},
		{"1024 bytes", map[string]string{"k": strings.Repeat("x", 1023)}, true},
		{"1025 bytes", map[string]string{"k": strings.Repeat("x", 1024)}, false},
		{"1025 bytes in many labels", map[string]string{"a": strings.Repeat("x", 512), "b": strings.Repeat("x", 511)}, false},
		{"4097 bytes", map[string]string{"k": strings.Repeat("x", 4096)}, false},
		{"10 MB", map[string]string{"k": strings.Repeat("x", 10<<20)}, false},
		{"deep JSON in a value", map[string]string{"k": strings.Repeat("[", 1000)}, true},
		{"invalid UTF-8 in a value", map[string]string{"k": "\xff"}, false},
		{"invalid UTF-8 in a key", map[string]string{"\xff": "v"}, false},
		{"a control character", map[string]string{"k": "a\nb"}, false},
		{"an override of direction", map[string]string{"k": "\u202e"}, false},
	} {
		t.Run(test.what, func(t *testing.T) {
			err := lockstep.CheckMetadata(test.labels)
			if (err == nil) != test.ok {
				t.Fatalf("CheckMetadata = %v", err)
			}
			if err != nil {
				wantInvalid(t, err, "metadata")
			}
		})
	}
}

// TestAnyNameIsJudged: a name that passes keeps every rule, and the error of any other
// is safe to print.
func TestAnyNameIsJudged(t *testing.T) {
	alphabet := []string{"a", "я", "/", ".", " ", "_", "\x00", "\n", "\xff", "\u200b", "\u202e", "😀", "-"}
	judge := func(picks []uint8) bool {
		var b strings.Builder
		for _, p := range picks {
			b.WriteString(alphabet[int(p)%len(alphabet)])
		}
		name := b.String()
		err := lockstep.CheckName(name)
		if err != nil {
			wantInvalid(t, err, "name")
			return true
		}
		padded := "/" + name + "/"
		return utf8.ValidString(name) && len(name) <= lockstep.MaxNameBytes && name[0] != '_' &&
			!strings.ContainsAny(name, "\x00\n\u200b\u202e") &&
			!strings.Contains(padded, "//") && !strings.Contains(padded, "/./") && !strings.Contains(padded, "/../") &&
			!strings.Contains(padded, "/ ") && !strings.Contains(padded, " /")
	}
	if err := quick.Check(judge, &quick.Config{MaxCount: 5000}); err != nil {
		t.Error(err)
	}
}
