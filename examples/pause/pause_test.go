package main

import (
	"testing"

	"github.com/lockstep-dev/lockstep"
)

func TestATokenIsShortAndStillOlder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b lockstep.Token
		want string
	}{
		{23, 25, "23 < 25"},
		{253122849519760, 253122849519761, "..9760 < ..9761"},
		{253122849519999, 253122849520000, "..19999 < ..20000"},
		{9999, 10000, "9999 < 10000"},
		{1, lockstep.MaxToken, "1 < ..0991"},
	} {
		if got := older(c.a, c.b); got != c.want {
			t.Errorf("%d, %d: %s, want %s", c.a, c.b, got, c.want)
		}
	}
}
