//go:build mutant_lifo

package machine

// mutantLIFO is a planted bug that the simulator must find: the machine grants the last waiter of a
// queue instead of the first.
const mutantLIFO = true
