package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the waits of a test on a busy machine.
const patience = 30 * time.Second

func logger() *slog.Logger {
	if os.Getenv("LOCKSTEP_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

// A running is a server, or a cluster, until it is stopped.
type running struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
}

func start(t *testing.T, run func(context.Context) error) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- run(ctx) }()
	t.Cleanup(r.stop)
	return r
}

// stop shuts it down and checks that it ends gracefully.
func (r *running) stop() {
	r.t.Helper()
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	select {
	case err := <-r.done:
		if err != nil {
			r.t.Errorf("Run ended with %v", err)
		}
	case <-time.After(patience):
		r.t.Error("Run does not end")
	}
}

func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v still: %v", patience, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func alone(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.New(server.Config{
		Name: "n1", DataDir: t.TempDir(), Version: "v0",
		Listen: "127.0.0.1:0", PeerListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0",
		Logger: logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func serving(t *testing.T, s *server.Server) {
	t.Helper()
	eventually(t, func() error {
		if st := s.Status(); !st.Serving || st.Counts.NextToken == 0 {
			return errors.New("it does not serve")
		}
		return nil
	})
}

func get(t *testing.T, address, path, host string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func api(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// grant opens a session and takes a lock in it.
func grant(ctx context.Context, conn *grpc.ClientConn, name string) (*pb.ClaimStatus, error) {
	locks := pb.NewLockServiceClient(conn)
	o, err := locks.OpenSession(ctx, &pb.OpenSessionRequest{TtlMs: 60_000})
	if err != nil {
		return nil, err
	}
	r, err := locks.Acquire(ctx, &pb.AcquireRequest{Session: o.GetSession(), Secret: o.GetSecret(), Spec: &pb.ClaimSpec{Names: []string{name}}})
	return r.GetClaim(), err
}

func TestAServerServesAloneAndStops(t *testing.T) {
	s := alone(t)
	if s.Addresses() != (server.Addresses{}) {
		t.Error("a server that does not run has addresses")
	}
	r := start(t, s.Run)
	serving(t, s)
	conn := api(t, s.Addresses().Client)
	if _, err := grant(patient(t), conn, "x"); err != nil {
		t.Fatal(err)
	}
	st, err := pb.NewAdminServiceClient(conn).Status(patient(t), &pb.StatusRequest{})
	if err != nil || st.GetVersion() != "v0" || st.GetLeader() != "n1" || st.GetMembers()[0].GetRole() != "leader" || st.GetMembers()[0].GetHealth() != "ok" {
		t.Errorf("status %v, %v", st, err)
	}
	r.stop()
	for _, address := range []string{s.Addresses().Client, s.Addresses().Peer, s.Addresses().HTTP} {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			t.Errorf("%s is still listened on", address)
		}
	}
}

func TestTheHTTPPort(t *testing.T) {
	s := alone(t)
	start(t, s.Run)
	serving(t, s)
	if _, err := grant(patient(t), api(t, s.Addresses().Client), "x"); err != nil {
		t.Fatal(err)
	}
	address := s.Addresses().HTTP
	for _, path := range []string{"/livez", "/readyz", "/debug/pprof/", "/debug/pprof/cmdline"} {
		if code, body := get(t, address, path, ""); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	_, metrics := get(t, address, "/metrics", "")
	for _, line := range []string{"lockstep_is_leader 1", "lockstep_grants_total 1", "lockstep_holders 1", "lockstep_sessions 1", "lockstep_batch_commands_count"} {
		eventually(t, func() error {
			if !strings.Contains(metrics, line) {
				_, metrics = get(t, address, "/metrics", "")
				return fmt.Errorf("no %q in the metrics", line)
			}
			return nil
		})
	}
	for host, want := range map[string]int{"localhost:1": 200, "127.0.0.1": 200, "[::1]:7402": 200, "evil.example": 421, "localhost.evil.example": 421} {
		if code, _ := get(t, address, "/metrics", host); code != want {
			t.Errorf("a request for %q was answered %d, want %d", host, code, want)
		}
	}
	if code, _ := get(t, address, "/nothing", ""); code != http.StatusNotFound {
		t.Errorf("an unknown path was answered %d", code)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(must(http.NewRequest(http.MethodPost, "http://"+address+"/livez", nil)))
	if err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Fatalf("POST was answered %v, %v", resp, err)
	}
	resp.Body.Close()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestTheHealthPortAnswersWhileTheHTTPPortIsFull(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Config{
		Name: "n1", DataDir: t.TempDir(), Listen: "127.0.0.1:0", PeerListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0",
		ConnectionsPerAddress: 3, Logger: logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	start(t, s.Run)
	serving(t, s)
	for i := range 4 { // one more than there is room for
		c, err := net.Dial("tcp", s.Addresses().HTTP)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil && i < 3 {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		// A request in progress keeps its place.
		if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200"))); (err == nil) != (i < 3) {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	eventually(t, func() error {
		_, metrics := get(t, s.Addresses().Health, "/metrics", "")
		for _, line := range []string{`lockstep_connections{port="http"} 3`, `lockstep_connections_refused_total{bound="address",port="http"} 1`} {
			if !strings.Contains(metrics, line+"\n") {
				return fmt.Errorf("no %q in the metrics", line)
			}
		}
		return nil
	})
	for _, path := range []string{"/livez", "/readyz"} {
		if code, body := get(t, s.Addresses().Health, path, ""); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

func TestAClientOnTheWrongPortIsToldSo(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	for what, address := range map[string]string{"HTTP port": s.Addresses().HTTP, "health port": s.Addresses().Health} {
		_, err := grant(patient(t), api(t, address), "x")
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "7400") {
			t.Errorf("on the %s: %v", what, err)
		}
	}
}

func TestANodeThatIsAloneInALargerClusterIsNotReadyButAlive(t *testing.T) {
	cfg := good()
	cfg.DataDir, cfg.Listen, cfg.PeerListen, cfg.HTTPListen = t.TempDir(), "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.InitialCluster = map[string]string{"n1": "127.0.0.1:1", "n2": "127.0.0.1:2", "n3": "127.0.0.1:3"} // nobody is there
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	start(t, s.Run)
	eventually(t, func() error {
		if s.Addresses().HTTP == "" {
			return errors.New("no port is bound")
		}
		return nil
	})
	if code, body := get(t, s.Addresses().HTTP, "/readyz", ""); code != http.StatusServiceUnavailable || body == "" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	if code, body := get(t, s.Addresses().HTTP, "/livez", ""); code != http.StatusOK {
		t.Errorf("/livez: %d %q", code, body)
	}
}

func TestAPortInUseIsNamed(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s, err := server.New(server.Config{
		Name: "n1", DataDir: t.TempDir(), Listen: "127.0.0.1:0", PeerListen: "127.0.0.1:0", HTTPListen: taken.Addr().String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "HTTPListen") {
		t.Errorf("Run ended with %v", err)
	}
	s, err = server.New(server.Config{
		Name: "n1", DataDir: t.TempDir(), Listen: "127.0.0.1:0", PeerListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", HealthListen: taken.Addr().String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "HealthListen") || !strings.Contains(err.Error(), "--health-listen") {
		t.Errorf("Run ended with %v", err)
	}
}

func TestADirectoryInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	config := func() server.Config {
		return server.Config{Name: "n1", DataDir: dir, Listen: "127.0.0.1:0", PeerListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0"}
	}
	first := must(server.New(config()))
	start(t, first.Run)
	serving(t, first)
	if err := must(server.New(config())).Run(t.Context()); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("the second server on a directory ended with %v", err)
	}
}

func startThree(t *testing.T) (c *server.Cluster, endpoints []string) {
	t.Helper()
	ready := make(chan []string, 1)
	c, err := server.NewCluster(server.ClusterConfig{
		Nodes: 3, DataDir: t.TempDir(), Logger: logger(),
		OnReady: func(endpoints []string) { ready <- endpoints },
	})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, c.Run)
	select {
	case endpoints = <-ready:
	case err := <-r.done:
		t.Fatalf("Run ended with %v", err)
	case <-time.After(patience):
		t.Fatal("the cluster does not get ready")
	}
	return c, endpoints
}

func TestAClusterInOneProcessGetsReadyAndGrants(t *testing.T) {
	_, endpoints := startThree(t)
	if len(endpoints) != 3 {
		t.Fatalf("endpoints %v", endpoints)
	}
	st, err := pb.NewAdminServiceClient(api(t, endpoints[0])).Status(patient(t), &pb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	claim, err := grant(patient(t), api(t, st.GetLeaderAddress()), "x")
	if err != nil || claim.GetToken() == 0 {
		t.Errorf("got %v, %v", claim, err)
	}
}

// TestAStoppingLeaderHandsOver stops the leader of three servers. The others continue, and what it
// held is still held.
func TestAStoppingLeaderHandsOver(t *testing.T) {
	servers, runs := threeServers(t)
	leader := leaderOf(t, servers)
	first, err := grant(patient(t), api(t, servers[leader].Addresses().Client), "x")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := pb.NewLockServiceClient(api(t, servers[leader].Addresses().Client)).Session(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	runs[leader].stop()
	// A leader that merely stopped would say UNAVAILABLE. The new leader's address comes with the
	// answer if the others have elected one within the 250 ms that the answer waits, which a busy
	// machine may not manage.
	if _, err := stream.Recv(); protocol.FromErr(err).GetReason() != pb.Reason_REASON_NOT_LEADER {
		t.Errorf("a stream of the old leader ended with %v, want NOT_LEADER", err)
	}
	delete(servers, leader)
	next := leaderOf(t, servers)
	conn := api(t, servers[next].Addresses().Client)
	l, err := pb.NewLockServiceClient(conn).GetLock(patient(t), &pb.GetLockRequest{Name: "x"})
	if err != nil || len(l.GetLock().GetHolders()) != 1 || l.GetLock().GetHolders()[0].GetToken() != first.GetToken() {
		t.Errorf("got %v, %v, want the holder with token %d", l, err, first.GetToken())
	}
	if claim, err := grant(patient(t), conn, "y"); err != nil || claim.GetToken() <= first.GetToken() {
		t.Errorf("got %v, %v", claim, err)
	}
}

func threeServers(t *testing.T) (map[int]*server.Server, map[int]*running) {
	t.Helper()
	peers, members := map[int]net.Listener{}, map[string]string{}
	for i := range 3 {
		peers[i] = must(net.Listen("tcp", "127.0.0.1:0"))
		members[fmt.Sprintf("n%d", i)] = peers[i].Addr().String()
	}
	servers, runs := map[int]*server.Server{}, map[int]*running{}
	for i := range 3 {
		servers[i] = must(server.New(server.Config{
			Name: fmt.Sprintf("n%d", i), DataDir: t.TempDir(), InitialCluster: members, ClusterSecret: testSecret,
			Listeners: server.Listeners{Peer: peers[i]}, Listen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", Logger: logger(),
		}))
		runs[i] = start(t, servers[i].Run)
	}
	return servers, runs
}

func leaderOf(t *testing.T, servers map[int]*server.Server) (leader int) {
	t.Helper()
	eventually(t, func() error {
		for i, s := range servers {
			if st := s.Status(); st.Serving && st.Counts.NextToken != 0 {
				leader = i
				return nil
			}
		}
		return errors.New("nobody leads")
	})
	return leader
}
