//go:build !mutant_forwarded

package replica

// mutantForwarded plants a bug: a quorum round counts although another leader confirmed it.
const mutantForwarded = false
