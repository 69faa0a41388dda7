// Package zkserver starts one or three real ZooKeeper servers on this machine, for tests and
// demonstrations.
//
// It runs the jar of the Debian package "zookeeper" with java, a small heap and a short tick, so
// that sessions can time out after one second. The servers listen on 127.0.0.1 and keep their data
// in one directory. They can be killed, frozen and restarted individually; after Close only their
// files are left.
package zkserver
