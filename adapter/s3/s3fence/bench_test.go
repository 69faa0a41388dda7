package s3fence_test

import (
	"testing"

	"github.com/lockstep-dev/lockstep/adapter/s3/s3fence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/s3server"
)

// BenchmarkWrite compares a guarded write of 100 bytes with a plain put, and measures the other
// steps.
func BenchmarkWrite(b *testing.B) {
	s := startServer(b)
	r := open(b, s, "x", s3fence.Config{})
	value := make([]byte, 100)
	b.Run("guarded", func(b *testing.B) {
		for b.Loop() {
			must(b, r.Write(b.Context(), grant(7), value))
		}
	})
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			r.put(b, "x", string(value))
		}
	})
	b.Run("enter", func(b *testing.B) {
		g := fence.Grant{Backend: "etcd:test", Lock: "reports", Token: 7}
		for b.Loop() {
			g.Token++
			must(b, r.Enter(b.Context(), g))
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			_, err := r.Read(b.Context())
			must(b, err)
		}
	})
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			_, err := s3fence.Open(b.Context(), r.cli, s3server.Bucket, s3fence.Config{})
			must(b, err)
		}
	})
}
