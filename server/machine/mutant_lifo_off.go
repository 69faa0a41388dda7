//go:build !mutant_lifo

package machine

const mutantLIFO = false
