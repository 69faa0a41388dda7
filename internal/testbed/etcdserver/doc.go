// Package etcdserver starts etcd clusters on this machine, for tests and demonstrations.
//
// A [Cluster] has one or three members, each a separate process that can be killed, frozen and
// started again. They listen on 127.0.0.1, keep their data below one directory, and end with
// [Cluster.Close]. Their timings are short, so that a lease of one second is possible and a new
// leader is found within about a second.
//
// The package needs the etcd program: see [Program].
package etcdserver
