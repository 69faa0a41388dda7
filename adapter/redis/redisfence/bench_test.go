package redisfence_test

import (
	"testing"

	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

// BenchmarkWrite compares a guarded write of 100 bytes with a plain SET.
func BenchmarkWrite(b *testing.B) {
	s := startServer(b, redisserver.Config{})
	value := make([]byte, 100)
	b.Run("guarded", func(b *testing.B) {
		r := open(b, s.Address(), "x", -1)
		for b.Loop() {
			must(b, r.Write(b.Context(), grant(7), value))
		}
	})
	b.Run("plain", func(b *testing.B) {
		rdb := connect(b, s.Address())
		for b.Loop() {
			must(b, rdb.Set(b.Context(), "x", value, 0).Err())
		}
	})
}
