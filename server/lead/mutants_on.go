//go:build mutant

package lead

// planted names the bug of this build. The linker sets it.
var planted string

var (
	mutantAnew      = planted == "anew"
	mutantForwarded = planted == "forwarded"
	mutantJoin      = planted == "join"
	mutantRound     = planted == "round"
	mutantUnlogged  = planted == "unlogged"
)
