package main

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// A caller makes calls on one connection.
type caller struct {
	mu     sync.Mutex
	framer *http2.Framer
	next   uint32
}

func (c *caller) begin(method string, m proto.Message) error {
	body, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	stream := c.next
	c.next += 2
	if err := call(c.framer, stream, method, ""); err != nil {
		return err
	}
	return c.framer.WriteData(stream, true, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...))
}

// calls keeps o.number calls in progress. If o.deaf is set, it begins that many and reads none of
// the responses.
func calls(ctx context.Context, o *options, target string) error {
	conn, err := o.dial(ctx, target)
	if err != nil {
		return err
	}
	f, err := preface(conn)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c := &caller{framer: f, next: 1}
	begin := func() error {
		return c.begin(pb.LockService_History_FullMethodName, &pb.HistoryRequest{Name: "nobody"})
	}
	if o.deaf {
		if err := f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
			return err
		}
		begin = func() error {
			return c.begin(pb.LockService_ListLocks_FullMethodName, &pb.ListLocksRequest{PageSize: 1000})
		}
	}
	go c.listen(func() error {
		if o.deaf {
			return nil
		}
		return begin()
	})
	opened := 0
	for ; opened < o.number && begin() == nil; opened++ {
	}
	return ready(ctx, opened)
}

// listen answers pings, opens the flow-control window for what arrived, and calls ended for each
// finished call, until the connection ends.
func (c *caller) listen(ended func() error) {
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return
		}
		c.mu.Lock()
		switch frame := frame.(type) {
		case *http2.PingFrame:
			if !frame.IsAck() {
				err = c.framer.WritePing(true, frame.Data)
			}
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = c.framer.WriteSettingsAck()
			}
		case *http2.DataFrame:
			if n := len(frame.Data()); n > 0 {
				err = c.framer.WriteWindowUpdate(0, uint32(n))
			}
		}
		c.mu.Unlock()
		if h, ok := frame.(*http2.HeadersFrame); ok && h.StreamEnded() {
			err = ended()
		}
		if err != nil {
			return
		}
	}
}
