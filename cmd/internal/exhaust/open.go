package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// atOnce bounds how many connections are opened concurrently.
const atOnce = 64

// connections opens connections to a client port and keeps them. It does not reopen those that the
// server closes.
func connections(ctx context.Context, o *options, target string) error {
	opened := each(o.number, func() bool {
		c, err := o.dial(ctx, target)
		if err != nil {
			return false
		}
		if o.busy {
			return watchHealth(c) == nil
		}
		return true
	})
	return ready(ctx, opened)
}

// each calls open number times, and counts how often it returned true.
func each(number int, open func() bool) int {
	var opened atomic.Int64
	var all sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for range number {
		places <- struct{}{}
		all.Go(func() {
			if open() {
				opened.Add(1)
			}
			<-places
		})
	}
	all.Wait()
	return int(opened.Load())
}

// watchHealth begins a health watch, a call that never ends, and then answers pings.
func watchHealth(c net.Conn) error {
	f, err := preface(c)
	if err != nil {
		return err
	}
	if err := call(f, 1, "/grpc.health.v1.Health/Watch", ""); err != nil {
		return err
	}
	if err := f.WriteData(1, true, make([]byte, 5)); err != nil { // an empty message: the health of the whole server
		return err
	}
	go func() { _, _ = answers(f, 1) }() // until the connection ends
	return c.SetDeadline(time.Time{})
}

// watches opens HTTP requests that never end.
func watches(ctx context.Context, o *options, target string) error {
	host, path, _ := strings.Cut(strings.TrimPrefix(target, "http://"), "/")
	opened := each(o.number, func() bool {
		c, err := o.dial(ctx, host)
		if err != nil {
			return false
		}
		if _, err := fmt.Fprintf(c, "GET /%s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host); err != nil {
			return false
		}
		status := make([]byte, len("HTTP/1.1 200"))
		if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return false
		}
		_, err = io.ReadFull(c, status)
		return err == nil && bytes.HasSuffix(status, []byte("200"))
	})
	return ready(ctx, opened)
}

// headers opens calls with large headers, each on its own connection, and keeps them open.
func headers(ctx context.Context, o *options, target string) error {
	var refused atomic.Int64
	large := strings.Repeat("x", o.bytes)
	opened := each(o.number, func() bool {
		c, err := o.dial(ctx, target)
		if err != nil {
			return false
		}
		f, err := preface(c)
		if err != nil {
			return false
		}
		if err := call(f, 1, "/lockstep.v1.LockService/Watch", large); err != nil {
			refused.Add(1) // the server closed the connection
			return true
		}
		if ended, err := answers(f, 1); ended || err != nil {
			refused.Add(1)
		}
		return true
	})
	fmt.Println("refused", refused.Load())
	return ready(ctx, opened)
}

// preface starts an HTTP/2 connection.
func preface(c net.Conn) (*http2.Framer, error) {
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return nil, err
	}
	f := http2.NewFramer(c, c)
	return f, f.WriteSettings()
}

// call sends the headers of a call.
func call(f *http2.Framer, stream uint32, method, large string) error {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "exhaust"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"x-large", large},
	} {
		if err := e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			return err
		}
	}
	const frame = 16 << 10
	first := block.Next(frame)
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndHeaders: block.Len() == 0})
	for err == nil && block.Len() > 0 {
		part := block.Next(frame)
		err = f.WriteContinuation(stream, block.Len() == 0, part)
	}
	return err
}

// answers reads frames, and answers pings, until the stream or the connection ends.
func answers(f *http2.Framer, stream uint32) (ended bool, err error) {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return false, err
		}
		switch frame := frame.(type) {
		case *http2.PingFrame:
			if !frame.IsAck() {
				err = f.WritePing(true, frame.Data)
			}
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return true, nil
		case *http2.HeadersFrame:
			if frame.StreamEnded() && frame.StreamID == stream {
				return true, nil
			}
		}
		if err != nil {
			return false, err
		}
	}
}
