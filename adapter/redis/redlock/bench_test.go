package redlock_test

import "testing"

// BenchmarkFreeLock takes and releases a free lock on five servers of this machine that sync each
// write.
func BenchmarkFreeLock(b *testing.B) {
	m := durable(b)
	l := m.open(b, patient())
	release(b, acquire(b, l, "jobs/x"))
	for b.Loop() {
		release(b, acquire(b, l, "jobs/x"))
	}
}
