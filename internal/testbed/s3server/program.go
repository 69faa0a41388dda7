package s3server

import "github.com/lockstep-dev/lockstep/internal/testbed"

// Program finds the versitygw program: the path in LOCKSTEP_VERSITYGW, else .bin/versitygw in the
// working directory or a parent, where scripts/install-versitygw puts it, else versitygw in PATH.
// The error says how to get it. The tests are written for version 1.8.
func Program() (string, error) { return testbed.Program("versitygw", "LOCKSTEP_VERSITYGW") }
