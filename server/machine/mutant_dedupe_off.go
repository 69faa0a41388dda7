//go:build !mutant_dedupe

package machine

const mutantDedupe = false
