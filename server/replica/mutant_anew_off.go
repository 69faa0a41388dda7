//go:build !mutant_anew

package replica

// mutantAnew plants a bug: every leader starts every lease over.
const mutantAnew = false
