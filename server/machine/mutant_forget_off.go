//go:build !mutant_forget

package machine

const mutantForget = false
