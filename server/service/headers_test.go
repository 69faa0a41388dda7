package service_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// A rawCall begins a call with its own headers, like a client that respects none of the server's
// settings. ended says that the server has ended the call, or the connection, without serving it.
func rawCall(t *testing.T, address, method string, header string) (ended bool) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"x-header", header},
	} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // into memory
	}
	f := http2.NewFramer(c, c)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	err = f.WriteSettings()
	for first := true; err == nil && (first || block.Len() > 0); first = false {
		part := block.Next(16 << 10)
		if first {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: part, EndHeaders: block.Len() == 0})
		} else {
			err = f.WriteContinuation(1, block.Len() == 0, part)
		}
	}
	if err != nil {
		return true // the server has closed the connection
	}
	if err := f.WriteData(1, true, make([]byte, 5)); err != nil { // an empty message
		return true
	}
	for {
		switch frame, err := f.ReadFrame(); {
		case err != nil:
			return !strings.Contains(err.Error(), "timeout")
		case frame.Header().StreamID != 1 && frame.Header().Type != http2.FrameGoAway:
		case frame.Header().Type == http2.FrameRSTStream, frame.Header().Type == http2.FrameGoAway:
			return true
		case frame.Header().Type == http2.FrameHeaders:
			return false // an answer
		}
	}
}

func TestLargeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	for _, method := range []string{pb.LockService_GetLock_FullMethodName, pb.LockService_Watch_FullMethodName, "/grpc.health.v1.Health/Check"} {
		if rawCall(t, m.address, method, strings.Repeat("x", 8<<10)) {
			t.Errorf("%s with 8 KiB of headers was not answered", method)
		}
		for _, size := range []int{17 << 10, 4 << 20} {
			if !rawCall(t, m.address, method, strings.Repeat("x", size)) {
				t.Errorf("%s with %d KiB of headers was answered", method, size>>10)
			}
		}
	}
}
