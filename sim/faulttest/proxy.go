package faulttest

import (
	"testing"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// NewProxy starts a proxy that ends with the test.
func NewProxy(t *testing.T, target string) *testbed.Proxy {
	t.Helper()
	p, err := testbed.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
