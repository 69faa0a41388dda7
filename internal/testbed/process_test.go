//go:build unix

package testbed_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// appending is a server that writes a line when it starts, and another when it is asked to stop.
func appending(t *testing.T) (command testbed.Command, lines func() string) {
	log := filepath.Join(t.TempDir(), "log")
	read := func() string {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), "Terminated\n", "") // what a shell prints about its child
	}
	return testbed.Command{
		Path: "sh", Args: []string{"-c", `trap 'echo end; exit' TERM; echo begin; while :; do sleep 0.02; done`}, Log: log,
		Ready: func() error {
			if text, _ := os.ReadFile(log); !strings.HasSuffix(string(text), "begin\n") {
				return errors.New("not yet")
			}
			return nil
		},
	}, read
}

func TestAServerIsStoppedAndStartedAgain(t *testing.T) {
	command, lines := appending(t)
	p, err := testbed.Start(command)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if err := p.Start(); err == nil {
		t.Error("a running server was started again")
	}
	p.Stop(t.Context())
	if got := lines(); got != "begin\nend\n" || p.PID() != 0 {
		t.Errorf("log %q, pid %d", got, p.PID())
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := p.Freeze(); err != nil {
		t.Error(err)
	}
	p.Kill() // kills a frozen server too
	if got := lines(); got != "begin\nend\nbegin\n" {
		t.Errorf("log %q", got)
	}
	if err := p.Thaw(); err == nil {
		t.Error("a dead server was thawed")
	}
}

func TestAServerThatFailsToStartShowsWhy(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	_, err := testbed.Start(testbed.Command{
		Path: "sh", Args: []string{"-c", "echo the port is taken; exit 1"}, Log: log, Ready: func() error { return errors.New("no answer") },
	})
	if err == nil || !strings.Contains(err.Error(), "the port is taken") || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("error %v", err)
	}
	if _, err := testbed.Start(testbed.Command{Path: "no-such-server"}); err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("error %v", err)
	}
}

func TestACutProxyKeepsConnectionsOpenAndSilent(t *testing.T) {
	server := startEcho(t)
	p, err := testbed.NewProxy(server)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	checkCut(t, p, func() (net.Conn, error) { return net.Dial("tcp", p.Address()) })
}

func TestACutCableSeparatesItsClientFromEveryServer(t *testing.T) {
	servers := []string{startEcho(t), startEcho(t)}
	p, err := testbed.NewCable()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	dials := 0
	checkCut(t, p, func() (net.Conn, error) {
		dials++
		return testbed.DialThrough(t.Context(), p.Address(), servers[dials%2])
	})
}

func TestACableToNowhereEndsTheConnection(t *testing.T) {
	p, err := testbed.NewCable()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, nowhere := range []string{"127.0.0.1:1", "no address", strings.Repeat("x", 1000)} {
		conn, err := testbed.DialThrough(t.Context(), p.Address(), nowhere)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("to %.20s: %d bytes, %v, want the connection closed", nowhere, n, err)
		}
	}
}

// startEcho starts a server that echoes its input.
func startEcho(t *testing.T) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go echo(l)
	return l.Addr().String()
}

func checkCut(t *testing.T, p *testbed.Proxy, dial func() (net.Conn, error)) {
	conn, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := talk(conn, "one"); got != "one" {
		t.Fatalf("%q, %v", got, err)
	}
	p.Cut()
	if got, err := talk(conn, "two"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("cut: %q, %v, want no answer, and the connection open", got, err)
	}
	p.Heal()
	if _, err := talk(conn, "three"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("healed: %v, want the old connection closed", err)
	}
	again, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got, err := talk(again, "four"); got != "four" {
		t.Errorf("%q, %v", got, err)
	}
}

func echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			buffer := make([]byte, 100)
			for {
				n, err := conn.Read(buffer)
				if err != nil {
					return
				}
				conn.Write(buffer[:n])
			}
		}()
	}
}

func talk(conn net.Conn, text string) (string, error) {
	conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := conn.Write([]byte(text)); err != nil {
		return "", err
	}
	buffer := make([]byte, 100)
	n, err := conn.Read(buffer)
	return string(buffer[:n]), err
}
