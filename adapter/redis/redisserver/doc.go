// Package redisserver starts real Redis servers for tests and demonstrations: servers that can be
// killed, frozen and started again, each with a data directory of its own.
//
// It needs the program redis-server (Debian: apt-get install redis-server) and speaks to it without
// a client library.
package redisserver
