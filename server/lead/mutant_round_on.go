//go:build mutant_round

package lead

// mutantRound plants a bug: a keepalive is answered because the replica believes that it leads.
const mutantRound = true
