package faulttest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/sim/faulttest"
)

// grants takes and releases this many locks, and returns the last token.
func grants(t *testing.T, cluster *faulttest.Cluster, count int) (last lockstep.Token) {
	t.Helper()
	return grantsAt(t, cluster.Endpoints(), count)
}

func grantsAt(t *testing.T, endpoints []string, count int) (last lockstep.Token) {
	t.Helper()
	c := newClient(t, client.Config{Endpoints: endpoints, UnavailableAfter: 30 * time.Second})
	for range count {
		lock, err := c.Acquire(t.Context(), "restore/job", lockstep.WithWait(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if lock.Token() <= last {
			t.Fatalf("token %d after %d", lock.Token(), last)
		}
		last = lock.Token()
		if err := lock.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return last
}

func save(t *testing.T, cluster *faulttest.Cluster, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backup")
	if out, err := cluster.Command(append([]string{"snapshot", "save", file}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("save: %v\n%s", err, out)
	}
	return file
}

func TestTokensGoOnAfterEveryRestoreAndAfterANewStart(t *testing.T) {
	cluster := faulttest.Start(t, 3)
	holder := newClient(t, client.Config{Endpoints: cluster.Endpoints(), TTL: 60 * time.Second})
	if _, err := holder.Acquire(t.Context(), "restore/held", lockstep.WithWait(20*time.Second)); err != nil {
		t.Fatal(err)
	}
	grants(t, cluster, 20)
	file := save(t, cluster)
	before := grants(t, cluster, 300)
	for round := range 2 {
		cluster.Restore(file, "--skip-wait")
		after := grants(t, cluster, 1)
		if after <= before {
			t.Fatalf("restore %d: token %d after %d", round, after, before)
		}
		before = after
	}
	reader := newClient(t, client.Config{Endpoints: cluster.Endpoints()})
	if s, err := reader.Inspect(t.Context(), "restore/held"); err != nil || len(s.Holders) != 0 {
		t.Errorf("a holder survived: %+v, %v", s, err)
	}
	cluster.Wipe()
	cluster.StartAll()
	if after := grants(t, cluster, 1); after <= before {
		t.Errorf("new cluster: token %d after %d", after, before)
	}
}

func TestARestoredClusterKeepsItsWaitOverARestart(t *testing.T) {
	t.Parallel() // it mostly waits
	cluster := faulttest.Start(t, 3)
	before := grants(t, cluster, 5)
	cluster.Restore(save(t, cluster), "--longest-ttl", "12s")
	began := time.Now()
	time.Sleep(2 * time.Second)
	cluster.KillAll()
	restarted := time.Now() // each node begins its wait after that
	cluster.StartAll()
	if after := grants(t, cluster, 1); after <= before {
		t.Errorf("token %d after %d", after, before)
	}
	if waited := time.Since(restarted); waited < 11*time.Second {
		t.Errorf("granted %v after the restart and %v after the restore", waited, time.Since(began))
	}
}

func TestALostQuorumIsReplacedFromTheDirectoryOfASurvivor(t *testing.T) {
	cluster := faulttest.Start(t, 5)
	before := grants(t, cluster, 50)
	cluster.KillAll() // three of them for good
	file := save(t, cluster, "--data-dir", cluster.DataDir(4))
	cluster.Restore(file, "--skip-wait")
	if after := grants(t, cluster, 1); after <= before {
		t.Errorf("token %d after %d", after, before)
	}
}

func TestAnOldNodeIsRefusedByTheRestoredCluster(t *testing.T) {
	cluster := faulttest.Start(t, 3)
	grants(t, cluster, 5)
	file := save(t, cluster)
	cluster.KillAll()
	old := cluster.DataDir(0) + ".old"
	if err := os.Rename(cluster.DataDir(0), old); err != nil {
		t.Fatal(err)
	}
	cluster.Restore(file, "--skip-wait")
	last := grants(t, cluster, 1)
	cluster.Kill(0)
	if err := os.RemoveAll(cluster.DataDir(0)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(old, cluster.DataDir(0)); err != nil {
		t.Fatal(err)
	}
	cluster.StartNode(0)
	time.Sleep(2 * time.Second) // it has time to disturb the others
	after := grantsAt(t, cluster.Endpoints()[1:], 5)
	if after <= last {
		t.Errorf("token %d after %d", after, last)
	}
	unsure := newClient(t, client.Config{Endpoints: cluster.Endpoints(), UnavailableAfter: 30 * time.Second})
	switch lock, err := unsure.Acquire(t.Context(), "restore/job", lockstep.WithWait(30*time.Second)); {
	case err != nil && !errors.Is(err, client.ErrTwoClusters):
		t.Errorf("with the old node among the endpoints: %v", err)
	case err == nil && lock.Token() <= after:
		t.Errorf("with the old node among the endpoints: token %d after %d", lock.Token(), after)
	}
	out, err := cluster.Command("status", "-o", "json", "--endpoints", cluster.Endpoints()[1]).Output()
	if err != nil {
		t.Fatal(err)
	}
	var status struct {
		Members []struct{ Name, Health string }
	}
	if err := json.Unmarshal(out, &status); err != nil {
		t.Fatal(err)
	}
	for _, m := range status.Members {
		if m.Name == "n1" && m.Health == "ok" {
			t.Errorf("the old node is a member: %s", out)
		}
	}
}

func TestDamagedFilesAndFullDirectoriesAreRefusedAndNothingIsTouched(t *testing.T) {
	cluster := faulttest.Start(t, 1)
	grants(t, cluster, 5)
	file := save(t, cluster)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the backup: %v, %v", info.Mode(), err)
	}
	restore := func(file, dir string) (string, error) {
		out, err := cluster.Command("snapshot", "restore", file, "--name", "n1", "--data-dir", dir, "--initial-cluster", "n1=127.0.0.1:7401").CombinedOutput()
		return string(out), err
	}
	flipped := bytes.Clone(good)
	flipped[len(good)/2] ^= 4
	for name, content := range map[string][]byte{
		"cut": good[:len(good)-7], "flipped": flipped, "foreign": []byte("PRAGMA"), "empty": nil, "longer": append(bytes.Clone(good), 'x'),
	} {
		bad, dir := filepath.Join(t.TempDir(), name), filepath.Join(t.TempDir(), "new")
		if err := os.WriteFile(bad, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := restore(bad, dir); err == nil || !strings.Contains(out, "damaged backup") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: the target was touched: %v", name, err)
		}
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := restore(file, full); err == nil || !strings.Contains(out, "is not empty") {
		t.Errorf("a full directory: %v: %s", err, out)
	}
	if names, err := os.ReadDir(full); err != nil || len(names) != 1 {
		t.Errorf("the full directory was touched: %v, %v", names, err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if out, err := restore(file, link); err == nil {
		t.Errorf("a link was followed: %s", out)
	}
	if out, err := cluster.Command("snapshot", "save", file).CombinedOutput(); err == nil || !strings.Contains(string(out), "--force") {
		t.Errorf("a save over a file: %v: %s", err, out)
	}
	if out, err := cluster.Command("snapshot", "save", "--force", file).CombinedOutput(); err != nil {
		t.Errorf("a forced save: %v: %s", err, out)
	}
}

func TestASurvivorIsForcedIntoANewClusterOnce(t *testing.T) {
	cluster := faulttest.Start(t, 3)
	before := grants(t, cluster, 20)
	cluster.KillAll()
	if out, err := cluster.Command(cluster.ServerArgs(0, true, "--force-new-cluster")...).CombinedOutput(); err == nil || !strings.Contains(string(out), "--yes-") {
		t.Fatalf("forced without a word: %v: %s", err, out)
	}
	for round := range 2 {
		cluster.StartNodeWith(0, cluster.ServerArgs(0, true, "--force-new-cluster", "--yes-acknowledged-grants-may-be-lost", "--force-wait", "0"))
		after := grants(t, cluster, 5)
		if after <= before {
			t.Fatalf("start %d: token %d after %d", round, after, before)
		}
		if round == 1 && after > before+1000 {
			t.Errorf("token %d after %d: the second start has forced a new cluster again", after, before)
		}
		before = after
		cluster.Stop(0)
	}
	cluster.StartNodeWith(0, cluster.ServerArgs(0, true))
	if after := grants(t, cluster, 1); after <= before {
		t.Errorf("without the flag: token %d after %d", after, before)
	}
	cluster.StartNode(1) // a node of the old cluster, alone and with another id
	if after := grants(t, cluster, 1); after <= before {
		t.Errorf("beside an old node: token %d after %d", after, before)
	}
}
