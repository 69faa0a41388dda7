//go:build unix

package supervise

import (
	"encoding/binary"
	"io"
	"strings"
)

// A message between this program and the watcher is a kind and a number. Its 9 bytes are fewer than
// PIPE_BUF, so a write is all or nothing.
type message struct {
	kind  kind
	value int64
}

type kind byte

// To the watcher.
const (
	watchDeadline kind = 'd' // value: nanoseconds of Now
	watchGo       kind = 'g' // the child may become its command
	watchNoMore   kind = 'q' // kill nothing more
)

// From the watcher.
const (
	reportReady   kind = 'r' // the child is started and the deadline is known; value: process id of the child
	reportFailed  kind = 'f' // the child ended before it was ready; value: its wait status, or -errno
	reportStopped kind = 's' // value: the signal that stopped the command
	reportEnded   kind = 'e' // value: the wait status of the command
	reportEmpty   kind = 'n' // no descendant of the command is left
	reportOverdue kind = 'k' // the deadline has passed, and everything is being killed
)

const messageSize = 9

func (m message) encode() []byte {
	return binary.BigEndian.AppendUint64([]byte{byte(m.kind)}, uint64(m.value))
}

func decodeMessage(b []byte) message {
	return message{kind(b[0]), int64(binary.BigEndian.Uint64(b[1:]))}
}

// readMessage reads a message. An error means that the other side is gone.
func readMessage(from io.Reader) (message, error) {
	var buffer [messageSize]byte
	if _, err := io.ReadFull(from, buffer[:]); err != nil {
		return message{}, err
	}
	return decodeMessage(buffer[:]), nil
}

// maxWords bounds the size of a command that the watcher accepts, in bytes. The kernel allows at
// most 6 MiB of arguments, whatever the stack size.
const maxWords = 8 << 20

// sendWords sends the words of a command before any message. They are not arguments of the watcher,
// so that a search for a process by the words of the command finds only the command.
func sendWords(to io.Writer, words []string) error {
	text := strings.Join(words, "\x00")
	if _, err := to.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text)))); err != nil {
		return err
	}
	_, err := io.WriteString(to, text)
	return err
}

func receiveWords(from io.Reader) ([]string, error) {
	var size [8]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint64(size[:])
	if n > maxWords {
		return nil, io.ErrUnexpectedEOF
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(from, text); err != nil {
		return nil, err
	}
	return strings.Split(string(text), "\x00"), nil
}
