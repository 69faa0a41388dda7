//go:build mutant

package replica

// planted names the bug of this build. The linker sets it.
var planted string

var (
	mutantForwarded = planted == "forwarded"
	mutantSync      = planted == "sync"
)
