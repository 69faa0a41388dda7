package command

import (
	"fmt"
	"strings"
	"testing"
)

func TestASessionIDIsReadFromItsText(t *testing.T) {
	id := SessionID{0: 0xab, 15: 1}
	if got, err := ParseSessionID(id.String()); err != nil || got != id {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "ab", strings.Repeat("g", 32), strings.Repeat("0", 33), strings.Repeat("0", 1<<20)} {
		if _, err := ParseSessionID(bad); err == nil || len(err.Error()) > 200 {
			t.Errorf("%.40q gives %v", bad, err)
		}
	}
}

func TestNamesOfConstants(t *testing.T) {
	got := fmt.Sprint(Void, WaitEnded, Permits, EventCancelled, DelayOver, Code(200), State(0), TimerKind(99), Lost)
	if want := "void wait ended permits cancelled delay over code 200 state 0 timer 99 lost"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
