package cli

import (
	"bytes"
	"testing"
	"time"
)

func TestHistoryTellsWhoHeldForHowLongAndWhyItEnded(t *testing.T) {
	at := func(s int) instant { return instant{time.Date(2026, 1, 2, 3, 4, s, 0, time.UTC)} }
	who := map[string]string{"host": "db1", "purpose": "nightly"}
	var out bytes.Buffer
	a := &App{Out: &out, Err: &out}
	err := a.showHistory(historyReport{Name: "x", Complete: true, Events: []eventReport{
		{Kind: "granted", Session: "0123456789abcdef", Seq: 1, Token: 7, Time: at(1), Metadata: who},
		{Kind: "queued", Session: "fedcba9876543210", Seq: 1, Time: at(2)},
		{Kind: "revoked", Session: "0123456789abcdef", Seq: 1, Token: 7, Time: at(5), By: "ann", Reason: "stuck", Metadata: who},
		{Kind: "expired", Session: "fedcba9876543210", Seq: 1, Time: at(9)},
	}}, textOutput)
	want := `TIME                      EVENT    TOKEN  HELD FOR  SESSION           WHO                        WHY
2026-01-02T03:04:01.000Z  granted  7      -         0123456789abcdef  host db1, purpose nightly  
2026-01-02T03:04:02.000Z  queued   -      -         fedcba9876543210                             
2026-01-02T03:04:05.000Z  revoked  7      4s        0123456789abcdef  host db1, purpose nightly  by ann: stuck
2026-01-02T03:04:09.000Z  expired  -      -         fedcba9876543210                             the lease of its session expired
`
	if err != nil || out.String() != want {
		t.Errorf("%v, got\n%s", err, out.String())
	}
}
