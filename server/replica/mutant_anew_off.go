//go:build !mutant_anew

package replica

// mutantAnew plants a bug: every leader begins every lease anew.
const mutantAnew = false
