package cli

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client"
)

// A statusReport is what "status" tells.
type statusReport struct {
	ClusterID      string           `json:"cluster_id"`
	Node           string           `json:"node"`   // that says so: the leader if it answered
	Leader         string           `json:"leader"` // empty: none known
	LeaderAddress  string           `json:"leader_address"`
	Term           uint64           `json:"term"`
	AppliedIndex   uint64           `json:"applied_index"`
	CommittedIndex uint64           `json:"committed_index"`
	Members        []memberReport   `json:"members"`
	Sessions       uint64           `json:"sessions"`
	Locks          uint64           `json:"locks"`
	Waiters        uint64           `json:"waiters"`
	NextToken      uint64           `json:"next_token"`
	GrantsHeld     string           `json:"grants_held"`    // why nothing is granted; empty: grants go on
	GrantsHeldMS   uint64           `json:"grants_held_ms"` // how long that lasts at most; 0: not known
	Version        string           `json:"version"`
	Endpoints      []endpointReport `json:"endpoints"`
}

type memberReport struct {
	Name          string `json:"name"`
	ID            string `json:"id"`
	Role          string `json:"role"`
	Health        string `json:"health"`
	AppliedIndex  uint64 `json:"applied_index"`
	ClientAddress string `json:"client_address"`
	PeerAddress   string `json:"peer_address"`
}

// An endpointReport is how one of --endpoints answered.
type endpointReport struct {
	Endpoint string `json:"endpoint"`
	Node     string `json:"node,omitempty"`
	Error    string `json:"error,omitempty"`
}

func (a *App) statusCommand() *cobra.Command {
	var target targetFlags
	var out output
	cmd := &cobra.Command{
		Use:   "status [flags]",
		Short: "Show the nodes of the cluster and which one leads",
		Long: `Asks all --endpoints and shows the answer of the leader, or else of the node that has seen
most. Needs no majority of nodes. The exit code is 69 when nobody answers or no leader is known.`,
		Example: "  lockstep status\n  lockstep status --endpoints 127.0.0.1:7400 -o json | jq -r .leader",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return target.withAdmin(func(admin *client.Admin) error {
				report, err := reportStatus(admin.Status(cmd.Context()))
				if err != nil {
					return err
				}
				if err := a.printStatus(report, out); err != nil {
					return err
				}
				if report.Leader == "" {
					return exitError{CodeUnavailable, fmt.Errorf("no leader is known to %s: start more nodes, or wait for the election", report.Node)}
				}
				return nil
			})
		},
	}
	target.register(cmd.Flags())
	out.register(cmd.Flags())
	return cmd
}

func (a *App) printStatus(report statusReport, out output) error {
	if out == jsonOutput {
		return a.writeJSON(report)
	}
	return a.writeStatus(report)
}

// reportStatus takes the best of the answers.
func reportStatus(answers []client.NodeStatus) (statusReport, error) {
	var best *pb.StatusResponse
	var endpoints []endpointReport
	var refused error
	for _, n := range answers {
		if errors.Is(n.Err, client.ErrTwoClusters) {
			return statusReport{}, n.Err
		}
		e := endpointReport{Endpoint: n.Endpoint, Node: n.Status.GetNode()}
		if n.Err != nil {
			e.Error, refused = n.Err.Error(), n.Err
		}
		endpoints = append(endpoints, e)
		if n.Status == nil {
			continue
		}
		if best != nil && best.GetClusterId() != n.Status.GetClusterId() { // nodes of a build that tells it only here
			return statusReport{}, usageError("--endpoints: %s belongs to another cluster than the endpoints before it", n.Endpoint)
		}
		if best == nil || better(n.Status, best) {
			best = n.Status
		}
	}
	if best == nil {
		return statusReport{}, exitError{CodeUnavailable, fmt.Errorf("no endpoint answers: %w", refused)}
	}
	report := reportAnswer(best)
	report.Endpoints = endpoints
	return report, nil
}

// better prefers what a leader says of itself, and then the higher term.
func better(a, b *pb.StatusResponse) bool {
	if leads(a) != leads(b) {
		return leads(a)
	}
	if a.GetTerm() != b.GetTerm() {
		return a.GetTerm() > b.GetTerm()
	}
	return a.GetLeader() != "" && b.GetLeader() == ""
}

func leads(s *pb.StatusResponse) bool { return s.GetLeader() != "" && s.GetLeader() == s.GetNode() }

func reportAnswer(s *pb.StatusResponse) statusReport {
	report := statusReport{
		ClusterID:      s.GetClusterId(),
		Node:           s.GetNode(),
		Leader:         s.GetLeader(),
		LeaderAddress:  s.GetLeaderAddress(),
		Term:           s.GetTerm(),
		AppliedIndex:   s.GetAppliedIndex(),
		CommittedIndex: s.GetCommittedIndex(),
		Members:        []memberReport{},
		Sessions:       s.GetSessions(),
		Locks:          s.GetLocks(),
		Waiters:        s.GetWaiters(),
		NextToken:      s.GetNextToken(),
		GrantsHeld:     s.GetGrantsHeld(),
		GrantsHeldMS:   s.GetGrantsHeldMs(),
		Version:        s.GetVersion(),
	}
	for _, m := range s.GetMembers() {
		report.Members = append(report.Members, memberReport{
			Name:          m.GetName(),
			ID:            strconv.FormatUint(m.GetId(), 10), // above 2^53: no number for every JSON reader
			Role:          m.GetRole(),
			Health:        m.GetHealth(),
			AppliedIndex:  m.GetAppliedIndex(),
			ClientAddress: m.GetClientAddress(),
			PeerAddress:   m.GetPeerAddress(),
		})
	}
	return report
}

func (a *App) writeStatus(s statusReport) error {
	leader := s.Leader
	if leader == "" {
		leader = "none"
	}
	fmt.Fprintf(a.Out, "cluster %s: leader %s, term %d, %d locks, %d waiters, %d sessions (as %s says)\n",
		printable(s.ClusterID), printable(leader), s.Term, s.Locks, s.Waiters, s.Sessions, printable(s.Node))
	if s.GrantsHeld != "" {
		fmt.Fprintf(a.Out, "nothing is granted: %s%s\n", printable(s.GrantsHeld), atMost(s.GrantsHeldMS))
	}
	t := a.table()
	fmt.Fprintln(t, "NODE\tROLE\tHEALTH\tAPPLIED\tCLIENTS\tPEERS")
	for _, m := range s.Members {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", printable(m.Name), printable(m.Role), printable(m.Health),
			m.AppliedIndex, printable(m.ClientAddress), printable(m.PeerAddress))
	}
	return t.Flush()
}

// atMost says how long a state lasts, if that is known.
func atMost(ms uint64) string {
	if ms == 0 {
		return ""
	}
	return fmt.Sprintf("; at most %d s left", (ms+999)/1000)
}
