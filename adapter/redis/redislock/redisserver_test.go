package redislock_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

func start(t *testing.T, c redisserver.Config) *redisserver.Server {
	t.Helper()
	c.Dir = t.TempDir()
	s, err := redisserver.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// ask sends one command in inline form, and returns the first line of the reply, or the string that
// it announces.
func ask(s *redisserver.Server, command string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Address(), time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprintf(conn, "%s\r\n", command)
	answer := bufio.NewReader(conn)
	line, err := answer.ReadString('\n')
	if strings.HasPrefix(line, "$") && line != "$-1\r\n" {
		line, err = answer.ReadString('\n')
	}
	return strings.TrimSpace(line), err
}

func expect(t *testing.T, s *redisserver.Server, command, want string) {
	t.Helper()
	if got, err := ask(s, command); err != nil || got != want {
		t.Errorf("%s = %q, %v, want %q", command, got, err, want)
	}
}

func TestWhatAServerKnowsAfterACrash(t *testing.T) {
	for persistence, want := range map[redisserver.Persistence]string{
		redisserver.Forget:       "$-1",
		redisserver.AppendAlways: "v",
	} {
		t.Run(persistence.String(), func(t *testing.T) {
			s := start(t, redisserver.Config{Persistence: persistence})
			expect(t, s, "SET k v", "+OK")
			s.Kill()
			if _, err := ask(s, "PING"); err == nil {
				t.Error("a killed server answers")
			}
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			expect(t, s, "GET k", want)
		})
	}
}

func TestFrozenServerAnswersOnceItIsThawed(t *testing.T) {
	s := start(t, redisserver.Config{})
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(s, "PING"); err == nil {
		t.Error("a frozen server answers")
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	expect(t, s, "PING", "+PONG")
}

func TestReplicaCopiesItsMaster(t *testing.T) {
	master := start(t, redisserver.Config{})
	replica := start(t, redisserver.Config{ReplicaOf: master.Address(), Args: []string{"--replica-read-only", "yes"}})
	expect(t, master, "SET k v", "+OK")
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got, err := ask(replica, "GET k"); err == nil && got == "v" {
			return
		}
	}
	t.Error("the replica does not get what was written to its master")
}

func TestOptionsAndEnvironmentReachTheServer(t *testing.T) {
	address := start(t, redisserver.Config{}).Address()
	if _, err := redisserver.Start(redisserver.Config{Dir: t.TempDir(), Address: address}); err == nil {
		t.Fatal("two servers have one address")
	}
	s := start(t, redisserver.Config{Args: []string{"--maxmemory", "4mb", "--requirepass", "p"}, Env: []string{"LD_PRELOAD=no-such-library.so"}})
	if got, err := ask(s, "PING"); err != nil || !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("PING = %q, %v, want that a password is wanted", got, err)
	}
	// The dynamic loader complains in the log about the missing library.
	if text, err := os.ReadFile(s.Log()); err != nil || !strings.Contains(string(text), "no-such-library.so") {
		t.Errorf("the environment did not reach the server: %v, log:\n%s", err, text)
	}
}

func TestConfigIsCheckedBeforeAnythingStarts(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]redisserver.Config{
		"no directory":              {},
		"an address without a port": {Dir: dir, Address: "127.0.0.1"},
		"a port out of range":       {Dir: dir, Address: "127.0.0.1:70000"},
		"a bad master":              {Dir: dir, ReplicaOf: "somewhere"},
		"no such persistence":       {Dir: dir, Persistence: 7},
	} {
		if _, err := redisserver.Start(c); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if _, err := redisserver.Start(redisserver.Config{Dir: dir, Program: "no-such-redis"}); err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("missing program: %v", err)
	}
}
