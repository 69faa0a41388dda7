//go:build mutant

package session

// planted names the bug of this build. The linker sets it.
var planted string

var leaseMovesUnseen = planted == "validuntil"
