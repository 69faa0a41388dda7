package service

import (
	"testing"
	"time"
)

func TestAReaderThatTakesABackupTooSlowlyLosesItsPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sent   int64
		waited time.Duration
		slow   bool
	}{
		{0, saveSlack, false},
		{0, saveSlack + time.Second, true},
		{100 * saveRate, saveSlack + 100*time.Second, false},
		{100 * saveRate, saveSlack + 101*time.Second, true},
		{8 << 30, time.Hour, false},
		{64 << 10, 2 * time.Minute, true}, // 64 KiB every 10 s would hold the place for as long as it likes
	} {
		if err := readsTooSlowly(c.sent, c.waited); (err != nil) != c.slow {
			t.Errorf("%d bytes in %v: %v", c.sent, c.waited, err)
		}
	}
}
