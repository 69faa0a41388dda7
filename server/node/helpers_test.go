package node

import "fmt"

func want[T comparable](got, want T) error {
	if got != want {
		return fmt.Errorf("%v, want %v", got, want)
	}
	return nil
}

// sameApplied returns nil when all nodes have applied all entries.
func sameApplied(c *cluster) error {
	var last uint64
	for _, n := range c.nodes {
		last = max(last, n.Status().Commit)
	}
	for name, n := range c.nodes {
		if s := n.Status(); s.Applied != last {
			return fmt.Errorf("%s has applied %d of %d", name, s.Applied, last)
		}
	}
	return nil
}
