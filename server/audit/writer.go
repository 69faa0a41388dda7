package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
)

// A Header is the first line of a file.
type Header struct {
	Audit   int    `json:"audit"` // the format, 1
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	// Instance is that of the node's data directory: within one instance, numbers only rise.
	Instance string `json:"instance"`
	Next     uint64 `json:"next"` // number of the next event
}

// format is the format of the files that this build writes.
const format = 1

// An event is the line of an event.
type event struct {
	Number   uint64            `json:"number"`
	Time     string            `json:"time"` // the leader's wall clock
	Kind     string            `json:"kind"`
	Name     string            `json:"name"`
	Session  string            `json:"session"`
	Seq      uint64            `json:"seq"`
	Token    uint64            `json:"token,omitempty"`
	Mode     string            `json:"mode"`
	By       string            `json:"by,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"` // encoded in key order
}

// missing is the line in the place of lost events.
type missing struct {
	From uint64 `json:"missing_from"`
	To   uint64 `json:"missing_to"`
}

// A Writer makes the lines. The zero value expects event 1. It is not safe for concurrent use.
type Writer struct {
	last    uint64 // number of the last event that has a line
	lost    uint64 // number of events that have none
	pending bytes.Buffer
}

// Resume sets the number of the last event in the existing lines.
func (w *Writer) Resume(last uint64) { w.last = last }

// Last returns the number of the last event that has a line; 0 if there is none.
func (w *Writer) Last() uint64 { return w.last }

// Lost returns the number of missing events since the writer was made.
func (w *Writer) Lost() uint64 { return w.lost }

// Add makes the line of an event. An event that already has a line is left out; if events are
// missing before it, a line says so.
func (w *Writer) Add(e *command.Event) {
	if e.Number <= w.last {
		return
	}
	w.Skip(e.Number - 1)
	w.last = e.Number
	line := event{
		Number: e.Number, Kind: e.Kind.String(), Name: e.Name, Session: e.Claim.Session.String(), Seq: e.Claim.Seq,
		Time:  time.UnixMilli(int64(e.Wall)).UTC().Format("2006-01-02T15:04:05.000Z"),
		Token: uint64(e.Token), Mode: e.Mode.String(), By: e.By, Reason: e.Reason,
	}
	if len(e.Metadata) > 0 {
		line.Metadata = make(map[string]string, len(e.Metadata))
		for _, l := range e.Metadata {
			line.Metadata[l.Key] = l.Value
		}
	}
	w.line(line)
}

// Skip records the events up to the number to that have no line yet as missing.
func (w *Writer) Skip(to uint64) {
	if to > w.last {
		w.lost += to - w.last
		w.line(missing{w.last + 1, to})
		w.last = to
	}
}

// Copy takes the line of an event, with its end, from another node's log. A line that is already
// there is left out; a line that is not the next one is an error, and so is anything that is not an
// event's line.
func (w *Writer) Copy(line []byte) error {
	number, ok := eventNumber(line)
	switch {
	case !ok || !json.Valid(line):
		return fmt.Errorf("%w: %.64q is not an event", errWrongLine, line)
	case number > w.last+1:
		return fmt.Errorf("%w: event %d, want %d", errWrongLine, number, w.last+1)
	case number == w.last+1:
		w.last = number
		w.pending.Write(line)
	}
	return nil
}

// eventNumber returns the number of the event in a line. It reads no more of the line than that.
func eventNumber(line []byte) (number uint64, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"number":`))
	digits, _, found := bytes.Cut(rest, []byte(","))
	if !ok || !found || len(digits) > maxDigits {
		return 0, false
	}
	number, err := strconv.ParseUint(string(digits), 10, 64)
	return number, err == nil && number > 0
}

// maxDigits is the number of digits of the largest number.
const maxDigits = 20

// line returns the first line of a file whose first event is next.
func (h Header) line(next uint64) []byte {
	var w Writer
	h.Audit, h.Next = format, next
	w.line(h)
	return w.pending.Bytes()
}

func (w *Writer) line(v any) {
	encoder := json.NewEncoder(&w.pending)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(fmt.Sprintf("audit: encode %+v: %v", v, err)) // structs of texts and numbers
	}
}

// readTail examines the last bytes of a file; whole says whether they are the whole file. It
// returns how many of them are good lines, and the number of the last event that these account for.
// found is false if no good line has one.
func readTail(tail []byte, whole bool) (good int, last uint64, found bool) {
	if !whole { // it begins within a line
		good = bytes.IndexByte(tail, '\n') + 1
	}
	for {
		end := bytes.IndexByte(tail[good:], '\n')
		if end < 0 {
			return good, last, found
		}
		number, ok := accountsFor(tail[good : good+end])
		if !ok {
			return good, last, found
		}
		last, found = number, true
		good += end + 1
	}
}

// accountsFor returns the number of the last event that a line contains or records as missing.
func accountsFor(line []byte) (last uint64, ok bool) {
	var l struct {
		Audit  int    `json:"audit"`
		Next   uint64 `json:"next"`
		Number uint64 `json:"number"`
		To     uint64 `json:"missing_to"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return 0, false
	}
	switch {
	case l.Audit == format && l.Next > 0:
		return l.Next - 1, true
	case l.Number > 0:
		return l.Number, true
	default:
		return l.To, l.To > 0
	}
}
