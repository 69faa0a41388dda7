//go:build !mutant_sync

package replica

// mutantSync plants a bug: writes count as durable when they are handed out.
const mutantSync = false
