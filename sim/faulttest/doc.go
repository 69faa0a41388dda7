// Package faulttest runs the real server program and does to it what happens in production: it
// kills and freezes processes, and cuts connections.
//
// Its tests are slower than others and use the same client as everyone else. Those that take
// minutes have the build tag "acceptance".
package faulttest
