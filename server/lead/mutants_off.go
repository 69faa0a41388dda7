//go:build !mutant

package lead

// Bugs that sim/mutants.sh plants to see that the simulator finds them.
const (
	mutantAnew      = false // every leader starts every lease over
	mutantForwarded = false // a quorum round counts although another leader confirmed it
	mutantJoin      = false // a keepalive joins a quorum round that is already open
	mutantRound     = false // a keepalive is answered because the replica believes that it leads
	mutantUnlogged  = false // a keepalive is answered although the log says when the lease ends
)
