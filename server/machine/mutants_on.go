//go:build mutant

package machine

// planted names the bug of this build. The linker sets it.
var planted string

var (
	mutantDedupe = planted == "dedupe"
	mutantForget = planted == "forget"
	mutantLIFO   = planted == "lifo"
	mutantToken  = planted == "token"
)
