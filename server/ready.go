package server

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/service"
)

const (
	// slowDisk is how long a write may take before the node counts as not ready.
	slowDisk = time.Second
	// littleSpace is the free space below which the node counts as not ready: a snapshot and the
	// log until the next one may need that much, and a write that finds no space ends the process.
	littleSpace = 64 << 20
	// littleShare is the same for small file systems: a sixteenth of their size.
	littleShare = 16
)

// A check is one condition of readiness.
type check struct {
	name    string
	problem string // "": it holds
}

// ready answers 200 while the node can serve its clients or redirect them to the leader, else 503
// and the reasons. With ?verbose it lists every check.
func ready(n statusReader, dir string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		checks := append(checks(n.Status()), checkSpace(space(dir)))
		problems := problemsOf(checks)
		if len(problems) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		switch {
		case r.URL.Query().Has("verbose"):
			writeChecks(w, checks)
		case len(problems) > 0:
			fmt.Fprintln(w, strings.Join(problems, "\n"))
		default:
			fmt.Fprintln(w, "ok")
		}
	}
}

func writeChecks(w http.ResponseWriter, checks []check) {
	verdict := "ready"
	for _, c := range checks {
		if c.problem == "" {
			fmt.Fprintf(w, "[+] %s: ok\n", c.name)
			continue
		}
		verdict = "not ready"
		fmt.Fprintf(w, "[-] %s: %s\n", c.name, c.problem)
	}
	fmt.Fprintln(w, verdict)
}

func problemsOf(checks []check) (problems []string) {
	for _, c := range checks {
		if c.problem != "" {
			problems = append(problems, c.problem)
		}
	}
	return problems
}

// checks returns the state of a node, always as the same checks in the same order.
func checks(st node.Status) []check {
	started, leader, quorum, floor, disk := check{name: "started"}, check{name: "leader"}, check{name: "quorum"}, check{name: "grants"}, check{name: "disk"}
	switch {
	case st.Role == node.Starting:
		started.problem = "starting: the data directory is being read"
	case st.Leader == 0:
		leader.problem = "no leader is known: too few nodes can reach each other"
	case !service.Ready(st):
		quorum.problem = "this node is the leader, but has no quorum or has not caught up yet"
	}
	if st.Waiting != "" {
		started.problem = "this node does not participate: " + st.Waiting
	}
	if why := st.Replica.GrantsHeld; why != "" {
		floor.problem = "nothing is granted: " + why
		if left := st.Replica.GrantsHeldFor; left > 0 {
			floor.problem += fmt.Sprintf("; at most %d s left", (left+time.Second-1)/time.Second)
		}
	}
	if st.DiskBusy > slowDisk {
		disk.problem = fmt.Sprintf("the disk has not completed a write for %v", st.DiskBusy.Round(time.Millisecond))
	}
	return []check{started, leader, quorum, floor, disk}
}

// checkSpace checks the file system of the data directory.
func checkSpace(free, size uint64, known bool) check {
	c := check{name: "space"}
	if least := min(littleSpace, size/littleShare); known && free < least {
		c.problem = fmt.Sprintf("the file system of the data directory is full or nearly full: %d MiB free, %d MiB needed; free some space", free>>20, least>>20)
	}
	return c
}
