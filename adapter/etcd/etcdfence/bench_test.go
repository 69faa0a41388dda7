package etcdfence_test

import (
	"testing"

	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdfence"
)

// BenchmarkWrite compares a guarded write of 100 bytes with a plain put.
func BenchmarkWrite(b *testing.B) {
	r := open(b, startCluster(b), "x", etcdfence.Config{})
	value := make([]byte, 100)
	b.Run("guarded", func(b *testing.B) {
		for b.Loop() {
			must(b, r.Write(b.Context(), grant(7), value))
		}
	})
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			_, err := r.cli.Put(b.Context(), "x", string(value))
			must(b, err)
		}
	})
}
