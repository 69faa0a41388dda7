//go:build !keep_leader

package replica

// keepLeader disables the rules by which leadership moves away from a slow disk, to measure their
// cost.
const keepLeader = false
