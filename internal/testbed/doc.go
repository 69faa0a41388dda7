// Package testbed provides what tests and demonstrations with real servers need: free ports, server
// processes that can be killed, frozen and started again, and a proxy that cuts the network between
// a client and a server.
//
// Everything runs on this machine and ends with the test that started it.
package testbed
