// Package audit writes the history of a group to a file of one node: every event once, one JSON line each, in the
// order of their numbers.
//
// A [Writer] is pure: it makes the lines, leaves out what was written before, and says what is missing. A [Log]
// is its shell: the file, its rotation, and the goroutine that writes.
//
// A file begins with a line that says whose it is, {"audit":1,...}. All other lines are events, but for
// {"missing_from":5,"missing_to":9}, which stands where they are lost. The lines of one
// event are the same on every node, byte for byte.
//
// # What a node lacks
//
// A node that was away for so long that the history of the snapshot that brought it back begins behind its file's end, or
// whose queue ran over, lacks events. Then nothing is written before the other nodes' logs have been asked for them, one
// after the other, 16 MiB at a time, so that the file stays in order. Meanwhile newer events wait:
// 262,144 of them, and the history of one snapshot. What finds no room is the next gap, and asked for in its turn. A restart
// goes on from the end of the file.
//
// Of events that no peer has, the file says at once that they are missing. As long as a peer that may have
// them cannot be asked, or has not come so far itself, the peers are asked again every 2 s, for 2 minutes after the last line that came;
// gaps that were found by then are asked for once more, without waiting.
//
// The file is synced before it is rotated and at least every second. What a power cut takes from its end is written
// again when the node starts, since the node applies its log again, or from the history of its snapshot.
package audit
