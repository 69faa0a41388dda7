package clockjump_test

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed/clockjump"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

// wallClock asks the server for the time.
func wallClock(t *testing.T, s *redisserver.Server) time.Time {
	t.Helper()
	conn, err := net.DialTimeout("tcp", s.Address(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprint(conn, "TIME\r\n")
	lines := bufio.NewReader(conn)
	for range 2 { // the length of the array, and that of the seconds
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	text, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(seconds, 0)
}

func TestServerSeesTheJumpAtOnce(t *testing.T) {
	library, err := clockjump.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	clock, err := library.Clock(dir)
	if err != nil {
		t.Fatal(err)
	}
	server, err := redisserver.Start(redisserver.Config{Dir: dir, Env: clock.Env()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 1500 * time.Millisecond, 0} {
		if err := clock.Set(ahead); err != nil {
			t.Fatal(err)
		}
		shown := time.Until(wallClock(t, server))
		if off := shown - ahead; off > time.Minute || off < -time.Minute {
			t.Errorf("the server's clock is %v ahead, want %v", shown, ahead)
		}
	}
}
