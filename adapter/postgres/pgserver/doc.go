// Package pgserver starts a real PostgreSQL for tests and demonstrations, with a synchronous
// standby and with pgbouncer in transaction mode in front of it where they are wanted.
//
// The data is in a directory of its own and is gone after Close. Everything listens on 127.0.0.1
// and trusts every client. fsync stays on: a server that is killed comes back with all that it
// acknowledged.
//
// PostgreSQL and pgbouncer refuse to run as root. A process of root starts them as the user
// postgres, which the packages of the systems create; any other process starts them as itself.
package pgserver
