//go:build unix

package faulttest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// what is a kind of event.
type what string

const (
	began    what = "began"   // the body was called
	over     what = "over"    // its context was done
	ended    what = "ended"   // it returns
	wrote    what = "wrote"   // the resource accepted line N
	refused  what = "refused" // the resource refused it
	busy     what = "busy"    // no turn at the resource, or no answer
	resigned what = "resigned"
	left     what = "left" // Run returned and the client is closed; Note: the goroutines left

	// These are written by the tester, about process ID.
	killed what = "killed"
	frozen what = "frozen"
	cut    what = "cut"
)

// An entry of the journal.
type entry struct {
	At    time.Duration // on the clock of [now]
	ID    int           // of the process
	What  what
	Token lockstep.Token
	N     int
	Note  string `json:",omitempty"`
}

// A journal is a file that several processes append to. Each reads at its own offset.
type journal struct {
	file *os.File
	at   int64  // read so far
	rest []byte // of an incomplete line
}

func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	return &journal{file: file}, err
}

// note appends in one write, so that the lines of several processes do not mix.
func (j *journal) note(e entry) error {
	e.At = now()
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = j.file.Write(append(text, '\n'))
	return err
}

// read returns what is new.
func (j *journal) read() (found []entry, err error) {
	// Writing moves the file offset.
	text, err := io.ReadAll(io.NewSectionReader(j.file, j.at, math.MaxInt64-j.at))
	if err != nil {
		return nil, err
	}
	j.at += int64(len(text))
	j.rest = append(j.rest, text...)
	for {
		text, rest, whole := bytes.Cut(j.rest, []byte{'\n'})
		if !whole {
			return found, nil
		}
		var e entry
		if err := json.Unmarshal(text, &e); err != nil {
			return nil, fmt.Errorf("journal: %w: %s", err, text)
		}
		j.rest = rest
		found = append(found, e)
	}
}

// A line of the resource: the nth that this term added.
type line struct {
	token lockstep.Token
	n     int
}

func (l line) String() string { return fmt.Sprintf("%d %d\n", l.token, l.n) }

func linesOf(data []byte) (all []line, err error) {
	for text := range strings.Lines(string(data)) {
		var l line
		if _, err := fmt.Sscanf(text, "%d %d\n", &l.token, &l.n); err != nil {
			return nil, errors.Join(fmt.Errorf("the resource has the line %q", text), err)
		}
		all = append(all, l)
	}
	return all, nil
}
