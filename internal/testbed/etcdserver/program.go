package etcdserver

import "github.com/lockstep-dev/lockstep/internal/testbed"

// Program finds the etcd program: the path in LOCKSTEP_ETCD, else .bin/etcd in the working
// directory or a parent, where scripts/install-etcd puts it, else etcd in PATH. The error says how
// to get it. The tests are written for version 3.7.
func Program() (string, error) { return testbed.Program("etcd", "LOCKSTEP_ETCD") }
