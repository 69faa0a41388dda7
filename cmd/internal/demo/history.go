package demo

import (
	"context"
	"encoding/json"
	"fmt"
)

// An event is the part of "lockstep history -o json" that is used here.
type event struct {
	Kind  string `json:"kind"`
	Token uint64 `json:"token"`
}

func history(ctx context.Context, s *stage) error {
	if err := s.showOutput(ctx, "history", s.name("frozen")); err != nil {
		return err
	}
	out, err := s.output(ctx, "history", s.name("frozen"), "-o", "json")
	if err != nil {
		return err
	}
	var h struct {
		Events []event `json:"events"`
	}
	if err := json.Unmarshal(out, &h); err != nil {
		return fmt.Errorf("read the history: %w", err)
	}
	return checkHistory(h.Events)
}

// checkHistory expects A granted, B queued, A expired, B granted, in this order.
func checkHistory(events []event) error {
	want := []string{"granted", "queued", "expired", "granted"}
	for _, e := range events {
		if len(want) > 0 && e.Kind == want[0] {
			want = want[1:]
		}
	}
	if len(want) > 0 {
		return fmt.Errorf("the history lacks %q in this order", want)
	}
	return nil
}
