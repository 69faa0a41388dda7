package s3server

import "github.com/lockstep-dev/lockstep/locktest/testbed"

// Program finds the versitygw program: what LOCKSTEP_VERSITYGW names, else .bin/versitygw in the
// working directory or one above it, where scripts/install-versitygw puts it, else versitygw on
// PATH. The error says how to get it. The tests are written for version 1.8.
func Program() (string, error) { return testbed.Program("versitygw", "LOCKSTEP_VERSITYGW") }
