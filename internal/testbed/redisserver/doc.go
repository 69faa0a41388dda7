// Package redisserver starts real Redis servers for tests and demonstrations: servers that can be
// killed, frozen and restarted, each with its own data directory.
//
// It needs the redis-server program (Debian: apt-get install redis-server) and talks to it without
// a client library.
package redisserver
