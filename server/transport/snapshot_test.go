package transport

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

func TestASnapshotArrivesWhole(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 30_000)
	var got []byte
	a, _ := pair(t, func(n uint64, s *side) {
		s.store = func(m *raftpb.Message, r io.Reader) (err error) {
			if m.GetIndex() != 42 {
				return errors.New("another message")
			}
			got, err = io.ReadAll(r)
			return err
		}
	})
	if err := a.SendSnapshot(t.Context(), 1, msg(raftpb.MsgSnap, 1, 2, 42), bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, content) {
		t.Errorf("%d bytes came, %d were sent", len(got), len(content))
	}
}

func TestASnapshotKeepsToItsRate(t *testing.T) {
	a, _ := pair(t, func(n uint64, s *side) {
		s.cfg.SnapshotBytesPerSecond = 1 << 20
		s.store = func(_ *raftpb.Message, r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
	})
	began := time.Now()
	if err := a.SendSnapshot(t.Context(), 1, msg(raftpb.MsgSnap, 1, 2, 1), bytes.NewReader(make([]byte, 256<<10))); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("256 KiB at 1 MiB/s took %v", took)
	}
}

func TestAnIncompleteSnapshotIsAnErrorOnBothSides(t *testing.T) {
	stored := make(chan error, 1)
	a, _ := pair(t, func(n uint64, s *side) {
		s.store = func(_ *raftpb.Message, r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			stored <- err
			return err
		}
	})
	broken := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if err := a.SendSnapshot(t.Context(), 1, msg(raftpb.MsgSnap, 1, 2, 1), broken); err == nil {
		t.Error("the sender took it for whole")
	}
	if err := <-stored; err == nil {
		t.Error("the receiver took it for whole")
	}
}

func TestTheReceiversReasonReachesTheSender(t *testing.T) {
	a, _ := pair(t, func(n uint64, s *side) {
		s.store = func(_ *raftpb.Message, r io.Reader) error { return errors.New("disk full") }
	})
	err := a.SendSnapshot(t.Context(), 1, msg(raftpb.MsgSnap, 1, 2, 1), strings.NewReader("x"))
	if err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("err = %v", err)
	}
}

func TestOneSnapshotAtATimeIsReceived(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	a, _ := pair(t, func(n uint64, s *side) {
		s.store = func(_ *raftpb.Message, r io.Reader) error {
			close(inside)
			<-leave
			_, err := io.Copy(io.Discard, r)
			return err
		}
	})
	first := make(chan error, 1)
	go func() {
		first <- a.SendSnapshot(t.Context(), 1, msg(raftpb.MsgSnap, 1, 2, 1), strings.NewReader("x"))
	}()
	<-inside
	if err := a.SendSnapshot(t.Context(), 1, msg(raftpb.MsgSnap, 1, 2, 1), strings.NewReader("x")); err == nil || !strings.Contains(err.Error(), "another snapshot") {
		t.Errorf("second: %v", err)
	}
	close(leave)
	if err := <-first; err != nil {
		t.Errorf("first: %v", err)
	}
}

func TestAFlippedBitOnTheWayIsFound(t *testing.T) {
	var wire bytes.Buffer
	end, err := sendChunks(t.Context(), strings.NewReader(strings.Repeat("x", 1000)), 1<<30, func(b []byte) error {
		wire.Write(b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wire.Write(end)
	for _, at := range []int{frameHead, frameHead + 500, wire.Len() - 1} {
		b := bytes.Clone(wire.Bytes())
		b[at] ^= 1
		r := &contentReader{c: newConn(deadlineless{nopConn{Reader: bytes.NewReader(b)}})}
		if _, err := io.Copy(io.Discard, r); err == nil {
			t.Errorf("a bit flipped at %d was not found", at)
		}
	}
}

type deadlineless struct{ nopConn }

func (deadlineless) SetReadDeadline(time.Time) error { return nil }
