//go:build !mutant_forwarded

package lead

// mutantForwarded plants a bug: a quorum round counts although another leader confirmed it.
const mutantForwarded = false
