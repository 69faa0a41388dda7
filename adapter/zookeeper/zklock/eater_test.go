package zklock_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// An eater is a proxy that lets a request through and breaks the connection when the answer
// arrives.
type eater struct {
	listener net.Listener
	target   string
	group    sync.WaitGroup
	isHungry atomic.Bool
	eaten    atomic.Int64
}

func newEater(t *testing.T, target string) *eater {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &eater{listener: l, target: target}
	e.group.Go(e.accept)
	t.Cleanup(func() {
		l.Close()
		e.group.Wait()
	})
	return e
}

func (e *eater) address() string { return e.listener.Addr().String() }

// eatNextCreate eats the answer to the next create, once.
func (e *eater) eatNextCreate() { e.isHungry.Store(true) }

func (e *eater) accept() {
	for {
		down, err := e.listener.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", e.target)
		if err != nil {
			down.Close()
			continue
		}
		var waiting atomic.Int32 // the number of the request whose answer is to be eaten
		waiting.Store(-1)
		e.group.Go(func() { pump(up, down, func(frame []byte) bool { return e.sees(frame, &waiting) }) })
		e.group.Go(func() { pump(down, up, func(frame []byte) bool { return e.passes(frame, &waiting) }) })
	}
}

// sees inspects a request: after its length come its number and its type; 1 is a create.
func (e *eater) sees(frame []byte, waiting *atomic.Int32) bool {
	const create = 1
	if len(frame) >= 8 && binary.BigEndian.Uint32(frame[4:]) == create && e.isHungry.CompareAndSwap(true, false) {
		waiting.Store(int32(binary.BigEndian.Uint32(frame)))
	}
	return true
}

// passes inspects an answer, which starts with the number of its request.
func (e *eater) passes(frame []byte, waiting *atomic.Int32) bool {
	if number := waiting.Load(); number >= 0 && len(frame) >= 4 && int32(binary.BigEndian.Uint32(frame)) == number {
		e.eaten.Add(1)
		return false
	}
	return true
}

// pump copies frames while they pass, and then closes both sides.
func pump(to, from net.Conn, passes func(frame []byte) bool) {
	defer to.Close()
	defer from.Close()
	for {
		head := make([]byte, 4)
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(from, frame); err != nil || !passes(frame) {
			return
		}
		if _, err := to.Write(append(head, frame...)); err != nil {
			return
		}
	}
}
