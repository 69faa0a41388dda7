// Package api is the root of the wire protocol of Lockstep. The messages and the
// generated code are in lockstep/v1.
package api
