package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A span is the value of a flag that takes seconds, possibly fractional, or a duration such as
// 1m30s.
type span struct {
	d   time.Duration
	set bool
}

// String, Set and Type implement pflag.Value.
func (s *span) String() string {
	if !s.set {
		return ""
	}
	return s.d.String()
}

func (s *span) Set(text string) error {
	d, err := parseSpan(text)
	if err != nil {
		return err
	}
	s.d, s.set = d, true
	return nil
}

func (s *span) Type() string { return "seconds" }

var errSpan = errors.New("must be seconds, such as 2.5, or a duration, such as 1m30s, and not negative")

func parseSpan(text string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		const most = float64(math.MaxInt64 / int64(time.Second))
		if !(seconds >= 0 && seconds <= most) { // also rejects NaN
			return 0, errSpan
		}
		return time.Duration(seconds * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errSpan
	}
	return d, nil
}

// A ratio is the value of --permits: k of n.
type ratio struct{ k, n int }

// String, Set and Type implement pflag.Value.
func (r *ratio) String() string {
	if r.n == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", r.k, r.n)
}

func (r *ratio) Set(text string) error {
	first, second, found := strings.Cut(text, "/")
	k, err1 := strconv.Atoi(first)
	n, err2 := strconv.Atoi(second)
	if !found || err1 != nil || err2 != nil || k < 1 || k > n {
		return errors.New("must be k/n with 1 <= k <= n, such as 1/3")
	}
	r.k, r.n = k, n
	return nil
}

func (r *ratio) Type() string { return "k/n" }
