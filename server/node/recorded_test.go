package node

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/server/backup"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// The last token that the recorded cluster issued, and the configuration of its nodes.
const (
	recordedToken = command.Token(253393940344197)
	recordedID    = "e0d129988caf0e1d8d8d6186be38b71a"
)

var recordedMembers = map[string]string{"n1": "127.0.0.1:29101", "n2": "127.0.0.1:29111", "n3": "127.0.0.1:29121"}

// recorded unpacks testdata/level1.tar.gz, which the build ed23b6c wrote: the directories of three
// nodes that have granted jobs/done1 to done3, hold jobs/kept and jobs/second, and have shut down
// gracefully; the handles of the two; and a backup from in between.
func recorded(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	f, err := os.Open("testdata/level1.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o700)
		} else if content, readErr := io.ReadAll(r); readErr != nil {
			err = readErr
		} else {
			err = os.WriteFile(path, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// resume starts the nodes at other addresses than those that they were recorded with.
func resume(t *testing.T, dir string) *cluster {
	listeners := map[string]net.Listener{}
	actual := map[string]string{}
	for name, address := range recordedMembers {
		listeners[name] = listen(t)
		actual[address] = listeners[name].Addr().String()
	}
	c := newCluster(t, 0, func(cfg *Config) {
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", actual[address])
		}
	})
	c.dir, c.members = filepath.Join(dir, "data"), recordedMembers
	for name, l := range listeners {
		c.startOn(name, l)
	}
	return c
}

// A keptSession is what a handle of the recorded cluster holds.
type keptSession struct {
	Session string
	Secret  []byte
	Token   command.Token
}

func readHandle(t *testing.T, path string) (k keptSession, id command.SessionID) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(strings.TrimSpace(string(text)), ".")
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err == nil {
		err = json.Unmarshal(raw, &k)
	}
	if err == nil {
		id, err = command.ParseSessionID(k.Session)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k, id
}

func TestTheDirectoriesOfTheBuildInProductionGoOn(t *testing.T) {
	dir := recorded(t)
	c := resume(t, dir)
	leader := c.leader()
	if s := leader.Status(); s.Level != 1 || s.ClusterID != recordedID || s.Counts.Sessions != 2 || s.Counts.Holders != 2 {
		t.Fatalf("level %d, cluster %s, %+v", s.Level, s.ClusterID, s.Counts)
	}
	if token := c.hold("jobs/new"); token <= recordedToken {
		t.Errorf("token %d after %d", token, recordedToken)
	}
	c.eventually("the rise", func() error {
		_, err := answered[lead.LevelRaised](c.connect(c.leader()).call(lead.RaiseLevel{}))
		return err
	})
	c.raised(command.FeatureLevel)
	for i, name := range []string{"handle", "handle2"} {
		kept, id := readHandle(t, filepath.Join(dir, name))
		cl := c.connect(c.leader())
		cl.session = id
		if _, err := answered[lead.Attached](cl.call(lead.Attach{Secret: command.Secret(kept.Secret), Number: 1 << 60})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		lock, err := answered[lead.LockRead](cl.call(lead.ReadLock{Name: []string{"jobs/kept", "jobs/second"}[i], Holders: 1}))
		if err != nil || len(lock.Lock.Holders) != 1 || lock.Lock.Holders[0].Claim.Session != id {
			t.Errorf("%s: holders %+v, %v", name, lock.Lock.Holders, err)
		}
		c.eventually("no file has the secret", func() error {
			if names := c.holding(kept.Secret); len(names) > 0 {
				return fmt.Errorf("it is in %v", names)
			}
			return nil
		})
	}
}

// A backup of an older level becomes a cluster of the newest level, whose tokens are larger.
func TestABackupOfTheBuildInProductionIsRestored(t *testing.T) {
	file := filepath.Join(recorded(t), "backup")
	c := newCluster(t, 0, nil)
	l := listen(t)
	c.members = map[string]string{"n1": l.Addr().String()}
	b, err := backup.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if level := b.Machine.Limits().FeatureLevel; level != 1 {
		t.Fatalf("the backup has level %d", level)
	}
	origin := OriginOf(b, 0)
	if _, err := (Restore{Name: "n1", DataDir: filepath.Join(c.dir, "n1"), Members: c.members}).Run(b); err != nil {
		t.Fatal(err)
	}
	c.change = func(cfg *Config) { cfg.Origin = origin }
	n := c.startOn("n1", l)
	if token := c.hold("jobs/kept"); token <= recordedToken {
		t.Errorf("token %d after %d", token, recordedToken)
	}
	if s := n.Status(); s.Level != command.FeatureLevel || s.ClusterID == recordedID {
		t.Errorf("level %d, cluster %s", s.Level, s.ClusterID)
	}
}
