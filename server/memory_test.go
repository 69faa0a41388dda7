package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
)

func TestAMachineThatIsTooSmallForTheLimitIsWarned(t *testing.T) {
	for memory, want := range map[uint64]bool{0: false, 1 << 30: true, 2<<30 - 1: true, 2 << 30: false, 64 << 30: false} {
		var out bytes.Buffer
		warnOfMemory(slog.New(slog.NewTextHandler(&out, nil)), command.DefaultLimits(), memory)
		if got := strings.Contains(out.String(), "memory"); got != want {
			t.Errorf("%d bytes of memory: warned %v\n%s", memory, got, out.String())
		}
	}
}

func TestTheMemoryIsRead(t *testing.T) {
	if got := memTotal([]byte("MemFree:  1 kB\nMemTotal:       24604168 kB\nBuffers: 2 kB\n"), nil); got != 24604168<<10 {
		t.Errorf("read %d", got)
	}
	if got := memTotal(nil, nil); got != 0 {
		t.Errorf("read %d of nothing", got)
	}
}
