package service_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/service"
)

// A deaf client makes calls and does not let the server send anything of their answers: its window
// is 0.
type deaf struct {
	t      testing.TB
	framer *http2.Framer
	mu     sync.Mutex
	ended  chan struct{} // closed when the server has ended the connection
	calls  uint32
}

func newDeaf(t testing.TB, address string) *deaf {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	d := &deaf{t: t, framer: http2.NewFramer(c, c), ended: make(chan struct{})}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := d.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	go d.listen()
	return d
}

// listen answers pings, so that the connection looks alive.
func (d *deaf) listen() {
	defer close(d.ended)
	for {
		frame, err := d.framer.ReadFrame()
		if err != nil {
			return
		}
		d.mu.Lock()
		switch frame := frame.(type) {
		case *http2.PingFrame:
			if !frame.IsAck() {
				err = d.framer.WritePing(true, frame.Data)
			}
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = d.framer.WriteSettingsAck()
			}
		}
		d.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (d *deaf) call(method string, m proto.Message) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	e.SetMaxDynamicTableSize(0) // each block stands alone
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "test"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			d.t.Fatal(err)
		}
	}
	body, err := proto.Marshal(m)
	if err != nil {
		d.t.Fatal(err)
	}
	id := 2*d.calls + 1
	d.calls++
	if err := d.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		d.t.Fatal(err)
	}
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	if err := d.framer.WriteData(id, true, append(head, body...)); err != nil {
		d.t.Fatal(err)
	}
}

// longNames takes locks whose list is some 600 KiB.
func longNames(t *testing.T, api pb.LockServiceClient) *caller {
	t.Helper()
	a := newCaller(t, api, &pb.OpenSessionRequest{TtlMs: 300_000})
	for i := range 50 {
		var names []string
		for k := range 16 {
			names = append(names, fmt.Sprintf("%03d/%02d/%s", i, k, strings.Repeat("n", 480)))
		}
		if _, err := a.acquire(patient(t), &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: names}}); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func TestAnswersThatNobodyReadsAreBounded(t *testing.T) {
	t.Parallel()
	const limit = 2 << 20
	limits := service.Limits{UnreadBytesPerConnection: limit, Untaken: 4 * time.Second}
	m := startCluster(t, clusterOptions{nodes: 1, limits: limits}).leader()
	other := locks(t, m)
	longNames(t, other)
	page, err := other.ListLocks(patient(t), &pb.ListLocksRequest{PageSize: 1000})
	if err != nil || proto.Size(page) > 256<<10 || page.GetNextPageToken() == "" {
		t.Fatalf("a page has %d bytes and the token %q: %v", proto.Size(page), page.GetNextPageToken(), err)
	}

	d := newDeaf(t, m.address)
	for range 200 {
		d.call(pb.LockService_ListLocks_FullMethodName, &pb.ListLocksRequest{PageSize: 1000})
	}
	eventually(t, func() error {
		if bytes, _, _ := m.service.Unread(); bytes < limit/2 {
			return fmt.Errorf("%d bytes are unread", bytes)
		}
		return nil
	})
	for open := true; open; {
		select {
		case <-d.ended:
			open = false
		case <-time.After(20 * time.Millisecond):
		}
		// Concurrent handlers may all see room for one more answer.
		if bytes, _, _ := m.service.Unread(); bytes > limit+(1<<20) {
			t.Fatalf("%d bytes are unread, the limit is %d", bytes, limit)
		}
		if _, err := other.ListLocks(patient(t), &pb.ListLocksRequest{PageSize: 1000}); err != nil {
			t.Fatalf("another client: %v", err)
		}
	}
	eventually(t, func() error {
		if bytes, ended, _ := m.service.Unread(); bytes > 64<<10 || ended != 1 {
			return fmt.Errorf("after its end %d bytes are unread, %d connections were ended", bytes, ended)
		}
		return nil
	})
}

func TestUnreadAnswersOfAllConnectionsAreBoundedTogether(t *testing.T) {
	t.Parallel()
	const limit = 2 << 20 // four connections may have 32 MiB, each for itself
	m := startCluster(t, clusterOptions{nodes: 1, limits: service.Limits{UnreadBytes: limit, Untaken: 4 * time.Second}}).leader()
	other := locks(t, m)
	a := longNames(t, other)
	most := int64(0)
	list := func() error {
		bytes, _, _ := m.service.Unread()
		most = max(most, bytes)
		_, err := other.ListLocks(patient(t), &pb.ListLocksRequest{PageSize: 1000})
		return err
	}
	for range 4 {
		d := newDeaf(t, m.address)
		for range 50 {
			d.call(pb.LockService_ListLocks_FullMethodName, &pb.ListLocksRequest{PageSize: 1000})
		}
	}
	eventually(t, func() error {
		if err := list(); err == nil {
			return fmt.Errorf("a read is served; %d bytes were unread at most", most)
		} else if e := wantReason(t, err, pb.Reason_REASON_OVERLOADED); !strings.Contains(e.GetMessage(), "on this connection, address or node") {
			t.Errorf("the error says %q", e.GetMessage())
		}
		return nil
	})
	if _, err := a.acquire(patient(t), &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: []string{"free"}}}); err != nil {
		t.Errorf("a grant meanwhile: %v", err)
	}
	eventually(t, list) // their connections were ended
	if bytes, ended, _ := m.service.Unread(); bytes > limit || ended == 0 {
		t.Errorf("%d bytes are unread, %d connections were ended", bytes, ended)
	}
	if most > limit+(4<<20) { // handlers of one moment may all see room for one answer more
		t.Errorf("%d bytes were unread, the limit is %d", most, limit)
	}
}

func TestABackupThatNobodyReadsEnds(t *testing.T) {
	t.Parallel()
	m := startCluster(t, clusterOptions{nodes: 1, limits: service.Limits{Untaken: time.Second}}).leader()
	longNames(t, locks(t, m))
	d := newDeaf(t, m.address)
	d.call(pb.AdminService_SnapshotSave_FullMethodName, &pb.SnapshotSaveRequest{})
	select {
	case <-d.ended:
	case <-time.After(patience):
		t.Fatal("a backup that nobody reads goes on")
	}
	eventually(t, func() error { // the place is free
		s, err := pb.NewAdminServiceClient(dial(t, m.address)).SnapshotSave(patient(t), &pb.SnapshotSaveRequest{})
		if err != nil {
			return err
		}
		for {
			if _, err := s.Recv(); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
		}
	})
}

func TestOneConnectionCannotTakeAllWatches(t *testing.T) {
	t.Parallel()
	m := startCluster(t, clusterOptions{nodes: 1, limits: service.Limits{WatchesPerConnection: 3}}).leader()
	watch := func(api pb.LockServiceClient) error {
		w, err := api.Watch(patient(t), &pb.WatchRequest{})
		if err == nil {
			_, err = w.Recv()
		}
		return err
	}
	one := locks(t, m)
	for range 3 {
		if err := watch(one); err != nil {
			t.Fatal(err)
		}
	}
	e := wantReason(t, watch(one), pb.Reason_REASON_QUOTA_EXCEEDED)
	if e.GetMessage() != "watches of one connection: at most 3" {
		t.Errorf("the error says %q", e.GetMessage())
	}
	if err := watch(locks(t, m)); err != nil {
		t.Errorf("another connection: %v", err)
	}
}

func TestAConnectionThatReadsTooFastWaits(t *testing.T) {
	t.Parallel()
	m := startCluster(t, clusterOptions{nodes: 1, limits: service.Limits{ReadsPerSecond: 20}}).leader()
	one, other := locks(t, m), locks(t, m)
	read := func(api pb.LockServiceClient, n int) time.Duration {
		began := time.Now()
		for range n {
			if _, err := api.GetLock(patient(t), &pb.GetLockRequest{Name: "job"}); err != nil {
				t.Fatal(err)
			}
		}
		return time.Since(began)
	}
	if took := read(one, 40); took < 900*time.Millisecond { // 20 at once, and 20 a second
		t.Errorf("40 reads took %v at 20 a second", took)
	}
	read(other, 1)
}
