//go:build mutant_anew

package lead

// mutantAnew plants a bug: every leader starts every lease over.
const mutantAnew = true
