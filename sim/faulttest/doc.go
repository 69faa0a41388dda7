// Package faulttest runs the real server program and does to it what life does: it
// kills and freezes processes, and cuts connections.
//
// Its tests are slower than others and speak to the service through the same
// client as everybody. Those that take minutes have the build tag "acceptance".
package faulttest
