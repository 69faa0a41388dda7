//go:build keep_leader

package replica

// keepLeader switches the rules off by which a leader with a slow disk is left, to measure what they cost.
const keepLeader = true
