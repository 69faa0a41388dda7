// Command lockstep is all of Lockstep in one program: the service, the tools for inspecting it, and
// "lockstep run", which runs a command under a lock.
package main

import (
	"os"

	"github.com/lockstep-dev/lockstep/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args)) }
