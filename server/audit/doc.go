// Package audit writes the history of a group to a file of one node: every event once, one JSON line each, in the
// order of their numbers.
//
// A [Writer] is pure: it makes the lines, leaves out what was written before, and says what is missing. A [Log]
// is its shell: the file, its rotation, and the goroutine that writes.
//
// A file begins with a line that says whose it is, {"audit":1,...}. What was lost, because a node was away for so
// long that the history of the snapshot that brought it back begins later, is a line
// {"missing_from":5,"missing_to":9}. All other lines are events. Those of one
// number are the same on every node, byte for byte.
//
// The file is synced before it is rotated and at least every second. What a power cut takes from its end is written
// again when the node starts, since the node applies its log again, or from the history of its snapshot.
package audit
