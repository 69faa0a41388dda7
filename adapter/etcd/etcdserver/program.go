package etcdserver

import "github.com/lockstep-dev/lockstep/locktest/testbed"

// Program finds the etcd program: what LOCKSTEP_ETCD names, else .bin/etcd in the working directory
// or one above it, where scripts/install-etcd puts it, else etcd on PATH. The error says how to get
// it. The tests are written for version 3.7.
func Program() (string, error) { return testbed.Program("etcd", "LOCKSTEP_ETCD") }
