package faulttest_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/storage"
	"github.com/lockstep-dev/lockstep/server/transport"
	"github.com/lockstep-dev/lockstep/sim/faulttest"
)

var backWithin = flag.Duration("strangers.back", 30*time.Second, "how long a node may take to come back among silent connections")

// The kinds of frames that a stranger uses. They repeat the protocol's numbers: an attacker does
// not use our code.
const (
	kindHello = iota + 2
	kindWelcome
	kindMAC
	kindReady
	kindRefused
	kindMessage
)

// A stranger knows the addresses and names of a cluster, but not its secret.
type stranger struct {
	t       *testing.T
	cluster *faulttest.Cluster
	id      string // of the configuration, as derived from its members
}

func newStranger(t *testing.T, cluster *faulttest.Cluster) *stranger {
	members := map[string]string{}
	for i := range 3 {
		members[fmt.Sprintf("n%d", i+1)] = cluster.Peer(i)
	}
	return &stranger{t, cluster, node.ClusterID(members)}
}

func (s *stranger) nodeID(i int) uint64 { return node.ID(s.id, fmt.Sprintf("n%d", i+1)) }

// as returns what node i would say about itself, with a data directory that the stranger has made
// up.
func (s *stranger) as(i int) transport.Identity {
	return transport.Identity{
		ClusterID: s.id, Node: s.nodeID(i), Name: fmt.Sprintf("n%d", i+1), Instance: [16]byte{7, 7, 7}, PeerAddress: s.cluster.Peer(i), Level: command.FeatureLevel,
	}
}

// greet connects to node to as node from, and returns the connection and what was sent.
func (s *stranger) greet(from, to, order int) (c net.Conn, hello []byte) {
	s.t.Helper()
	c, err := net.DialTimeout("tcp", s.cluster.Peer(to), 10*time.Second)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	hello, err = json.Marshal(map[string]any{
		"version": 1, "purpose": "stream", "from": s.as(from), "to": strconv.FormatUint(s.nodeID(to), 10), "nonce": make([]byte, 32), "order": order,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(c, append([]byte("LOCKSTP1"), frame(kindHello, hello)...))
	return c, hello
}

// write sends what it can: the node may have closed the connection.
func (s *stranger) write(c net.Conn, b []byte) {
	s.t.Helper()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := c.Write(b); err != nil {
		s.t.Log("write:", err)
	}
}

func frame(kind byte, payload []byte) []byte {
	return append(append(binary.BigEndian.AppendUint32(nil, uint32(1+len(payload))), kind), payload...)
}

// next reads a frame.
func next(c net.Conn) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, nil, err
	}
	payload = make([]byte, min(binary.BigEndian.Uint32(head[:])-1, 1<<20))
	_, err = io.ReadFull(c, payload)
	return head[4], payload, err
}

func forged(from, to uint64) *raftpb.Message {
	return &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: &from, To: &to, Term: new(uint64(math.MaxUint64))}
}

func messageFrame(t *testing.T, m *raftpb.Message) []byte {
	t.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	body = append([]byte{0, 0, 0, 1}, body...)
	sum := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
	return frame(kindMessage, append(binary.BigEndian.AppendUint32(nil, sum), body...))
}

// metric reads one line of node i's metrics.
func metric(t *testing.T, cluster *faulttest.Cluster, i int, line string) float64 {
	t.Helper()
	for _, l := range strings.Split(string(get(t, "http://"+cluster.Health(i)+"/metrics")), "\n") {
		if rest, ok := strings.CutPrefix(l, line+" "); ok {
			v, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("node %d has no metric %s", i, line)
	return 0
}

func failures(reason string) string {
	return fmt.Sprintf("lockstep_peer_handshakes_failed_total{reason=%q}", reason)
}

// counted waits until a node's metric has risen above its previous value.
func (s *stranger) counted(i int, line string, before float64) {
	s.t.Helper()
	s.eventually(line+" rises", func() bool { return metric(s.t, s.cluster, i, line) > before })
}

func (s *stranger) eventually(what string, holds func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatal("never came: " + what)
		}
	}
}

func (s *stranger) ready(i int) bool {
	answer, err := http.Get("http://" + s.cluster.Health(i) + "/readyz")
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// granting checks that the cluster grants and that all nodes are well.
func (s *stranger) granting() {
	s.t.Helper()
	grants(s.t, s.cluster, 5)
	s.eventually("all nodes are ready", func() bool { return s.ready(0) && s.ready(1) && s.ready(2) })
}

// Each attack that a stranger without the secret, or a dishonest member, can try on the peer port
// of three processes. The cluster continues to grant, restarts, and has counted the attack.
func TestStrangersOnThePeerPort(t *testing.T) {
	t.Parallel() // it mostly waits
	cluster := faulttest.Start(t, 3)
	s := newStranger(t, cluster)
	s.granting()
	for _, attack := range []struct {
		name string
		try  func()
	}{
		{"a forged heartbeat of the last term", s.forgesAHeartbeat},
		{"material to guess the secret with", s.asksForMaterial},
		{"a liar at a member's address", s.liesAtTheAddressOfN3},
		{"silent connections while a node restarts", s.isSilentWhileN3Restarts},
		{"a member that is not honest", s.forgesAsAMember},
	} {
		attack.try()
		s.granting()
		if t.Failed() {
			t.Fatal("after: " + attack.name)
		}
	}
	cluster.KillAll()
	cluster.StartAll()
	s.granting()
}

func (s *stranger) forgesAHeartbeat() {
	for to := range 2 {
		before := metric(s.t, s.cluster, to, failures("wrong_secret"))
		c, hello := s.greet(2, to, 1)
		kind, welcome, err := next(c)
		if err != nil || kind != kindWelcome {
			s.t.Errorf("greeted, got a frame of kind %d, %v", kind, err)
		}
		h := hmac.New(sha256.New, nil) // of an empty secret
		for _, part := range [][]byte{[]byte("dialer"), hello, welcome} {
			fmt.Fprintf(h, "%d:", len(part))
			h.Write(part)
		}
		s.write(c, bytes.Join([][]byte{frame(kindMAC, h.Sum(nil)), frame(kindReady, nil), messageFrame(s.t, forged(s.nodeID(2), s.nodeID(to)))}, nil))
		if kind, answer, err := next(c); err == nil && kind != kindRefused {
			s.t.Errorf("without the secret: a frame of kind %d, %q", kind, answer)
		}
		s.counted(to, failures("wrong_secret"), before)
	}
}

func (s *stranger) asksForMaterial() {
	for order, reason := range []string{"older_order", "unproved"} {
		before := metric(s.t, s.cluster, 0, failures(reason))
		c, _ := s.greet(2, 0, order)
		kind, answer, err := next(c)
		if err != nil || kind == kindMAC || bytes.Contains(answer, []byte("instance")) {
			s.t.Errorf("order %d: told %q in a frame of kind %d, %v", order, answer, kind, err)
		}
		if err := c.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			s.t.Fatal(err)
		}
		if kind, answer, err := next(c); err == nil {
			s.t.Errorf("order %d: then %q in a frame of kind %d", order, answer, kind)
		}
		c.Close()
		s.counted(0, failures(reason), before)
	}
}

func (s *stranger) liesAtTheAddressOfN3() {
	s.cluster.Kill(2)
	l, err := net.Listen("tcp", s.cluster.Peer(2))
	if err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			const removed = 3
			// The connection may be gone.
			c.Write(frame(kindRefused, append([]byte{removed}, `member "n1" was removed`...)))
			c.Close()
		}
	}()
	for i := range 2 {
		s.counted(i, failures("imposter"), metric(s.t, s.cluster, i, failures("imposter"))+3)
	}
	grants(s.t, s.cluster, 5)
	l.Close()
	<-ended
	s.cluster.StartNode(2)
}

func (s *stranger) isSilentWhileN3Restarts() {
	s.cluster.Kill(2)
	before := metric(s.t, s.cluster, 0, failures("crowded"))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{}, 200)
	for range cap(ended) {
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				c, err := net.DialTimeout("tcp", s.cluster.Peer(0), time.Second)
				if err == nil {
					end := context.AfterFunc(ctx, func() { c.Close() })
					io.Copy(io.Discard, c) // until the connection is closed
					end()
					c.Close()
				}
				time.Sleep(50 * time.Millisecond)
			}
		}()
	}
	s.counted(0, failures("crowded"), before)
	began := time.Now()
	s.cluster.StartNode(2)
	s.eventually("n3 is back", func() bool { return s.ready(2) && metric(s.t, s.cluster, 0, `lockstep_peer_reachable{peer="n3"}`) == 1 })
	took := time.Since(began)
	s.t.Logf("200 silent connections: n3 is back after %v", took.Round(time.Millisecond))
	if took > *backWithin {
		s.t.Errorf("n3 is back after %v, want at most %v", took, *backWithin)
	}
	stop()
	for range cap(ended) {
		<-ended
	}
}

// A liar admits everybody and keeps nothing.
type liar struct{}

func (liar) Admit(transport.Identity, bool) error { return nil }
func (liar) Receive(uint32, []*raftpb.Message)    {}
func (liar) Rejected(uint64, error)               {}
func (liar) Unreachable(uint64)                   {}
func (liar) ReceiveSnapshot(context.Context, uint32, *raftpb.Message, io.Reader) error {
	return errors.New("not wanted")
}

// forgesAsAMember has n3's directory and secret, and sends what would stop the others for good.
func (s *stranger) forgesAsAMember() {
	s.cluster.Stop(2)
	store, err := storage.Open(storage.Config{Dir: s.cluster.DataDir(2), ClusterID: s.id, NodeID: s.nodeID(2)})
	if err != nil {
		s.t.Fatal(err)
	}
	self := s.as(2)
	self.Instance = store.InstanceID()
	l, err := net.Listen("tcp", s.cluster.Peer(2))
	if err = errors.Join(err, store.Close()); err != nil {
		s.t.Fatal(err)
	}
	secret, err := os.ReadFile(s.cluster.SecretFile())
	if err != nil {
		s.t.Fatal(err)
	}
	var peers []transport.Peer
	for i := range 2 {
		peers = append(peers, transport.Peer{Node: s.nodeID(i), Name: fmt.Sprintf("n%d", i+1), Address: s.cluster.Peer(i)})
	}
	n3, err := transport.New(transport.Config{Self: self, Peers: peers, Listener: l, Handler: liar{}, Secrets: func() [][]byte { return [][]byte{secret} }})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n3.Run(ctx) }()
	const dropped = "lockstep_peer_messages_dropped_total"
	for i := range 2 {
		before := metric(s.t, s.cluster, i, dropped)
		s.eventually("forged messages are dropped", func() bool {
			n3.Send(1, []*raftpb.Message{forged(self.Node, s.nodeID(i))})
			return metric(s.t, s.cluster, i, dropped) > before
		})
	}
	grants(s.t, s.cluster, 5)
	stop()
	if err := <-ended; err != nil {
		s.t.Error(err)
	}
	s.cluster.StartNode(2)
}

// Whatever comes first under the name of a node that has not started yet does not take its place.
func TestAStrangerWhoComesFirstDoesNotTakeAPlace(t *testing.T) {
	t.Parallel() // it mostly waits
	cluster := faulttest.Start(t, 3)
	s := newStranger(t, cluster)
	cluster.Wipe()
	for i := range 2 {
		cluster.StartNode(i)
	}
	for i := range 2 {
		s.eventually("the node answers", func() bool {
			c, err := net.Dial("tcp", cluster.Health(i))
			if err == nil {
				c.Close()
			}
			return err == nil
		})
		before := metric(t, cluster, i, failures("unproved"))
		c, _ := s.greet(2, i, 1)
		if kind, _, err := next(c); err != nil || kind != kindWelcome {
			t.Errorf("a frame of kind %d, %v", kind, err)
		}
		c.Close()
		s.counted(i, failures("unproved"), before)
		s.greet(2, i, 0)
	}
	cluster.StartNode(2)
	s.granting()
}

func TestAClusterWithoutAGoodSecretDoesNotStart(t *testing.T) {
	cluster := faulttest.Start(t, 1)
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, secret := range [][]string{nil, {"--cluster-secret-file", short}} {
		args := append([]string{
			"server", "--name", "n1", "--data-dir", filepath.Join(t.TempDir(), "n1"), "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--insecure",
			"--initial-cluster", "n1=127.0.0.1:7401,n2=127.0.0.1:7411",
		}, secret...)
		cmd := cluster.Command(args...)
		cmd.Env = slices.DeleteFunc(cmd.Env, func(e string) bool { return strings.HasPrefix(e, "LOCKSTEP_CLUSTER_SECRET_FILE=") }) // set by an acceptance script
		out, err := cmd.CombinedOutput()
		exit := new(exec.ExitError)
		if !errors.As(err, &exit) || exit.ExitCode() != 64 || !strings.Contains(string(out), "--cluster-secret-file") || !strings.Contains(string(out), "keygen secret") {
			t.Errorf("%v: %v, %s", secret, err, out)
		}
	}
}
