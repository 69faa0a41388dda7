// Package pgserver starts a real PostgreSQL for tests and demonstrations, optionally with a
// synchronous standby and with pgbouncer in transaction mode in front of it.
//
// The data is in its own directory, which Close deletes. Everything listens on 127.0.0.1 and trusts
// every client. fsync stays on: a killed server comes back with everything it acknowledged.
//
// PostgreSQL and pgbouncer refuse to run as root. A process running as root starts them as the user
// postgres, which system packages create; any other process starts them as its own user.
package pgserver
