//go:build !mutant_token

package machine

const mutantToken = false
