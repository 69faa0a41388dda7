//go:build unix

package term

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

const (
	// watcherStart bounds the time in which a watcher must say that it is ready.
	watcherStart = 10 * time.Second
	// watcherEnd bounds the time in which it must end when it was told to.
	watcherEnd = 2 * time.Second
	// feedPatience bounds a write to the watcher. The pipe holds 64 KiB, 7,000
	// messages, so only one that is frozen for long lets it run full.
	feedPatience = time.Second
)

// A message to the watcher is a kind and a number. 9 bytes are below PIPE_BUF, so
// that each is written whole or not at all.
type message struct {
	kind  kind
	value int64
}

type kind byte

const (
	watchGroup    kind = 'g' // value: the group
	watchDeadline kind = 'd' // value: nanoseconds of Now
	watchNoMore   kind = 'q' // the group ended, or is none of the watcher's business
)

const messageSize = 9

func (m message) encode() []byte {
	return binary.BigEndian.AppendUint64([]byte{byte(m.kind)}, uint64(m.value))
}

func decodeMessage(b []byte) message {
	return message{kind(b[0]), int64(binary.BigEndian.Uint64(b[1:]))}
}

// A Watcher is a process that kills a group when its deadline has passed, or when
// this process is gone. The zero value is none: it never ends.
type Watcher struct {
	command *exec.Cmd
	feed    *os.File
	done    chan struct{}
}

// StartWatcher returns when the watcher is ready: it knows the group and the
// deadline.
func StartWatcher(g Group, deadline time.Duration) (*Watcher, error) {
	w, ready, err := launchWatcher()
	if err != nil {
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	defer ready.Close()
	if err := w.introduce(g, deadline, ready); err != nil {
		w.command.Process.Kill()
		w.feed.Close()
		<-w.done
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	return w, nil
}

func launchWatcher() (*Watcher, *os.File, error) {
	in, feed, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	ready, out, err := os.Pipe()
	if err != nil {
		feed.Close()
		return nil, nil, err
	}
	defer out.Close()
	command := exec.Command(self())
	command.Args = []string{"lockstep", watcherArgument}
	command.Stdin, command.Stdout = in, out
	command.Dir = "/" // no mount is busy because of a watcher
	command.Env = append(os.Environ(), "GOMAXPROCS=1")
	command.SysProcAttr = watcherAttributes()
	if err := command.Start(); err != nil {
		feed.Close()
		ready.Close()
		return nil, nil, err
	}
	w := &Watcher{command: command, feed: feed, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		command.Wait()
	}()
	return w, ready, nil
}

func (w *Watcher) introduce(g Group, deadline time.Duration, ready *os.File) error {
	if err := w.send(message{watchGroup, int64(g)}); err != nil {
		return err
	}
	if err := w.Feed(deadline); err != nil {
		return err
	}
	ready.SetReadDeadline(time.Now().Add(watcherStart))
	var answer [1]byte
	_, err := io.ReadFull(ready, answer[:])
	return err
}

// Feed moves the deadline, which may also come nearer. It waits at most one
// second; on an error the watcher is of no more use.
func (w *Watcher) Feed(deadline time.Duration) error {
	return w.send(message{watchDeadline, int64(deadline)})
}

func (w *Watcher) send(m message) error {
	if w.command == nil {
		return nil
	}
	w.feed.SetWriteDeadline(time.Now().Add(feedPatience))
	if _, err := w.feed.Write(m.encode()); err != nil {
		return fmt.Errorf("feed the watcher: %w", err)
	}
	return nil
}

// Done is closed when the watcher has ended, told to or not.
func (w *Watcher) Done() <-chan struct{} { return w.done }

// StandDown ends the watcher without harm to the group. When it returns, no kill
// will come any more.
func (w *Watcher) StandDown() {
	if w.command == nil {
		return
	}
	err := w.send(message{kind: watchNoMore})
	if err == nil {
		timer := time.NewTimer(watcherEnd)
		defer timer.Stop()
		select {
		case <-w.done:
		case <-timer.C: // frozen
		}
	}
	w.Kill()
}

// Kill ends a watcher that is of no more use, at once and without harm to the group.
func (w *Watcher) Kill() {
	if w.command == nil {
		return
	}
	w.command.Process.Kill() // after its end this is a no-op
	<-w.done
	w.feed.Close()
}
