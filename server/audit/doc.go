// Package audit writes the history of a group to a file of one node: every event once, one JSON
// line each, in the order of their numbers.
//
// A [Writer] is pure: it makes the lines, leaves out what was already written, and says what is
// missing. A [Log] is its shell: the file, its rotation, and the goroutine that writes.
//
// A file begins with a line that says whose it is, {"audit":1,...}. All other lines are events,
// except {"missing_from":5,"missing_to":9}, which marks where events are lost. The lines of one
// event are the same on every node, byte for byte.
//
// # Missing events
//
// A node lacks events if it was away for so long that the history in the snapshot that brought it
// back begins after the end of its file, or if its queue overflowed. It then writes nothing before
// it has asked the other nodes' logs for them, one after the other, 16 MiB at a time, so that the
// file stays in order. Meanwhile newer events wait: 262,144 of them, plus the history of one
// snapshot. What does not fit becomes the next gap, and is asked for in its turn. A restart
// continues from the end of the file.
//
// If no peer has the events, the file says at once that they are missing. As long as a peer that
// may have them cannot be asked, or has not got that far itself, the peers are asked again every 2
// s, for 2 minutes after the last line received; for gaps known by then, they are asked once more,
// without waiting.
//
// The file is synced before it is rotated and at least every second. What a power cut removes from
// its end is written again when the node starts, because the node applies its log again, or from
// the history of its snapshot.
package audit
