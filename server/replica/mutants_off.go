//go:build !mutant

package replica

// Bugs that sim/mutants.sh plants to see that the simulator finds them.
const (
	mutantForwarded = false // a quorum round counts although another leader confirmed it
	mutantSync      = false // writes count as durable when they are handed out
)
