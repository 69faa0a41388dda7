//go:build linux

package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// newClusters returns a world with n services, each a cluster of its own. Its programs have the
// endpoints of all of them.
func newClusters(t *testing.T, n int) (w *world, endpoints []string) {
	const variable = "LOCKSTEP_ENDPOINTS="
	for range n {
		one := makeService(t)
		last := len(one.env) - 1
		endpoints = append(endpoints, strings.TrimPrefix(one.env[last], variable))
		w, one.env = one, one.env[:last]
	}
	w.env = append(w.env, variable+strings.Join(endpoints, ","))
	return w, endpoints
}

func TestEveryCommandRefusesEndpointsOfSeveralClusters(t *testing.T) {
	t.Parallel()
	w, endpoints := newClusters(t, 3)
	handle, _ := w.run(0, "acquire", "handled", "--ttl", "60s", "--endpoints", endpoints[0])
	handled := "LOCKSTEP_HANDLE=" + strings.TrimSpace(handle)
	for _, line := range []string{
		"run a -- touch ran", "run -n a -- touch ran", "hold a", "acquire a", "elect a -- touch ran", "elect --observe a", "renew", "release",
		"show a", "ls", "sessions", "history a", "watch", "status", "top -o json", "revoke handled --reason test", "bench --duration 1",
		"member list", "member add n9 127.0.0.1:9", "member promote n1", "member remove n1 --force", "member replace n1 127.0.0.1:9", "member lead",
		"snapshot save backup",
	} {
		for range 3 { // a client starts with any of the nodes
			out, errs := w.with(handled, CodeUsage, strings.Fields(line)...)
			if out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "endpoints of two clusters: ") {
				t.Errorf("%s: prints %q and %q", line, out, errs)
			}
		}
	}
	if w.has("ran") {
		t.Error("a command ran")
	}
	for _, e := range endpoints {
		locks := readJSON[struct {
			Locks []lockReport `json:"locks"`
		}](w, "ls", "--endpoints", e).Locks
		if len(locks) != 0 && (e != endpoints[0] || len(locks) != 1) {
			t.Errorf("locks of %s: %+v, want only the one of the handle", e, locks)
		}
	}
	w.with(handled, 0, "renew", "--endpoints", endpoints[0])
	if _, errs := w.with(handled, CodeUsage, "release", "--endpoints", endpoints[1]); !strings.Contains(errs, "wrong cluster: "+endpoints[1]) {
		t.Errorf("a handle of another cluster: %q", errs)
	}
	w.with(handled, 0, "release", "--endpoints", endpoints[0])
}

func TestACommandStaysWithTheClusterThatItIsGiven(t *testing.T) {
	w := newService(t)
	id := readJSON[statusReport](w, "status").ClusterID
	wrong := strings.Repeat("0", 32)
	for _, line := range []string{"run a -- true", "show a", "ls", "status", "bench --duration 1"} {
		words := strings.Fields(line)
		w.with("LOCKSTEP_CLUSTER="+id, 0, words...)
		if _, errs := w.with("LOCKSTEP_CLUSTER="+wrong, CodeUsage, words...); !strings.Contains(errs, id) || !strings.Contains(errs, wrong) {
			t.Errorf("%s for another cluster: %q", line, errs)
		}
		if _, errs := w.with("LOCKSTEP_CLUSTER=prod", CodeUsage, words...); !strings.Contains(errs, "32 lower-case hexadecimal digits") {
			t.Errorf("%s for a cluster that cannot be: %q", line, errs)
		}
	}
	if _, errs := w.run(CodeUsage, "run", "--backend", "redis://127.0.0.1:1", "--cluster", id, "a", "--", "true"); !strings.Contains(errs, "--cluster") {
		t.Errorf("another backend: %q", errs)
	}
}

func TestAWatchIsResumedAtAPosition(t *testing.T) {
	w := newService(t)
	for i := range 3 {
		w.run(0, "run", fmt.Sprint("a/", i), "--", "true")
	}
	out, _ := w.run(0, "watch", "--after", "2", "--limit", "1", "-o", "json")
	var e watchedEvent
	if err := json.Unmarshal([]byte(out), &e); err != nil || e.Number != 3 || e.Cluster != readJSON[statusReport](w, "status").ClusterID {
		t.Fatalf("watched %q, %v", out, err)
	}
	next, _ := w.run(0, "watch", "--after", fmt.Sprint(e.Cluster, ":", e.Number), "--limit", "1")
	if !strings.HasPrefix(next, "4 ") {
		t.Errorf("after %d: %q", e.Number, next)
	}
	for _, after := range []string{"999999999", e.Cluster + ":999999999", strings.Repeat("0", 32) + ":3"} {
		began := time.Now()
		_, errs := w.run(CodeUsage, "watch", "--after", after)
		if !strings.Contains(errs, "history has changed") || !strings.Contains(errs, e.Cluster+":6") || time.Since(began) > 5*time.Second {
			t.Errorf("after %s: %q in %v", after, errs, time.Since(began))
		}
	}
	for _, after := range []string{"x", e.Cluster, "prod:1"} {
		if _, errs := w.run(CodeUsage, "watch", "--after", after); !strings.Contains(errs, "--after") {
			t.Errorf("after %s: %q", after, errs)
		}
	}
}
