package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/server/replica"
)

// A statusReport is the output of "status".
type statusReport struct {
	ClusterID      string           `json:"cluster_id"`
	Node           string           `json:"node"`   // the node that answered; the leader if it did
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
	GrantsHeld     string           `json:"grants_held"`    // why nothing is granted; empty: locks are being granted
	GrantsHeldMS   uint64           `json:"grants_held_ms"` // how long that lasts at most; 0: unknown
	Version        string           `json:"version"`
	FeatureLevel   uint32           `json:"feature_level"` // of the cluster; 0: unknown
	Endpoints      []endpointReport `json:"endpoints"`
}

type memberReport struct {
	Name          string  `json:"name"`
	ID            string  `json:"id"`
	Role          string  `json:"role"`
	Health        string  `json:"health"`
	AppliedIndex  *uint64 `json:"applied_index"` // as reported by the node itself; null: no answer
	ClientAddress string  `json:"client_address"`
	PeerAddress   string  `json:"peer_address"`
	FeatureLevel  uint32  `json:"feature_level"` // the newest one that its build supports; 0: unknown
	Zone          string  `json:"zone"`          // empty: not reported
}

// An endpointReport is the answer of one of --endpoints, or of a member that is not among them.
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
		Short: "Show the nodes of the cluster and the leader",
		Long: `Asks all --endpoints, then the remaining members, and shows the answer of the leader or, without one,
of the most up-to-date node. Each node reports itself how far it has applied the log: - means that it did not
answer, and a line below names it. It does not need a majority. The exit code is 69 if no node answers or no
leader is known.`,
		Example: "  lockstep status\n  lockstep status --endpoints 127.0.0.1:7400 -o json | jq -r .leader",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return target.withAdmin(a, func(admin *client.Admin) error {
				report, err := askStatus(cmd.Context(), admin)
				if err != nil {
					return err
				}
				if err := a.printStatus(report, out); err != nil {
					return err
				}
				if report.Leader == "" {
					return exitError{CodeUnavailable, fmt.Errorf("%s knows no leader: start more nodes, or wait for the election", report.Node)}
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

// askStatus queries the endpoints, then the remaining members at their client addresses.
func askStatus(ctx context.Context, admin *client.Admin) (statusReport, error) {
	answers := admin.Status(ctx)
	best, err := bestStatus(answers)
	if err != nil {
		return statusReport{}, err
	}
	others := admin.StatusAt(ctx, unasked(best, answers))
	return reportStatus(best, answers, others), nil
}

// bestStatus returns the most informative answer, or an error if there is none.
func bestStatus(answers []client.NodeStatus) (best *pb.StatusResponse, err error) {
	for _, n := range answers {
		switch {
		case errors.Is(n.Err, client.ErrTwoClusters):
			return nil, n.Err
		case n.Status == nil:
		case best != nil && best.GetClusterId() != n.Status.GetClusterId(): // nodes whose build reveals it only here
			return nil, usageError("--endpoints: %s belongs to another cluster than the endpoints before it", n.Endpoint)
		case best == nil || better(n.Status, best):
			best = n.Status
		}
	}
	if best == nil {
		return nil, exitError{CodeUnavailable, fmt.Errorf("no endpoint answers: %w", client.OutageOf(answers))}
	}
	return best, nil
}

// unasked returns the addresses of the members that have not answered.
func unasked(s *pb.StatusResponse, answers []client.NodeStatus) []string {
	var addresses []string
	for _, m := range s.GetMembers() {
		heard := slices.ContainsFunc(answers, func(n client.NodeStatus) bool {
			return n.Status.GetNode() == m.GetName() || n.Endpoint == m.GetClientAddress()
		})
		if !heard && checkEndpoint("", m.GetClientAddress()) == nil {
			addresses = append(addresses, m.GetClientAddress())
		}
	}
	return addresses
}

// reportStatus returns the best of all answers, with what each node reports about itself.
func reportStatus(best *pb.StatusResponse, answers, others []client.NodeStatus) statusReport {
	applied, trouble := map[string]uint64{}, map[string]string{}
	var endpoints []endpointReport
	for i, n := range slices.Concat(answers, others) {
		e := endpointReport{Endpoint: n.Endpoint, Node: n.Status.GetNode()}
		if n.Err != nil {
			e.Error = n.Err.Error()
		}
		if outage, ok := errors.AsType[*client.OutageError](n.Err); ok {
			e.Error = strings.TrimPrefix(outage.Summary(), n.Endpoint+" ")
		}
		endpoints = append(endpoints, e)
		if n.Status == nil || n.Status.GetClusterId() != best.GetClusterId() {
			continue
		}
		applied[n.Status.GetNode()] = n.Status.GetAppliedIndex()
		trouble[n.Status.GetNode()] = ownTrouble(n.Status)
		if i >= len(answers) && better(n.Status, best) {
			best = n.Status
		}
	}
	report := reportAnswer(best)
	report.Endpoints = endpoints
	for i := range report.Members {
		m := &report.Members[i]
		if index, ok := applied[m.Name]; ok {
			m.AppliedIndex = &index
		}
		m.Health = cmp.Or(trouble[m.Name], m.Health)
	}
	return report
}

// ownTrouble is the health that a node reports of itself, or "" if that is good: a leader does not
// know that a node waits, for example because it was refused.
func ownTrouble(s *pb.StatusResponse) string {
	for _, m := range s.GetMembers() {
		if m.GetName() == s.GetNode() && m.GetHealth() != "ok" {
			return m.GetHealth()
		}
	}
	return ""
}

// better prefers a leader's own report, then the higher term.
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
		Members:        reportMembers(s.GetMembers()),
		Sessions:       s.GetSessions(),
		Locks:          s.GetLocks(),
		Waiters:        s.GetWaiters(),
		NextToken:      s.GetNextToken(),
		GrantsHeld:     s.GetGrantsHeld(),
		GrantsHeldMS:   s.GetGrantsHeldMs(),
		Version:        s.GetVersion(),
		FeatureLevel:   s.GetFeatureLevel(),
	}
	return report
}

func reportMembers(members []*pb.Member) []memberReport {
	all := []memberReport{}
	for _, m := range members {
		all = append(all, memberReport{
			Name: m.GetName(),
			// It may be above 2^53, which not every JSON reader can handle as a number.
			ID:            strconv.FormatUint(m.GetId(), 10),
			Role:          m.GetRole(),
			Health:        m.GetHealth(),
			ClientAddress: m.GetClientAddress(),
			PeerAddress:   m.GetPeerAddress(),
			FeatureLevel:  m.GetFeatureLevel(),
			Zone:          m.GetZone(),
		})
	}
	return all
}

func (a *App) writeStatus(s statusReport) error {
	leader := s.Leader
	if leader == "" {
		leader = "none"
	}
	fmt.Fprintf(a.Out, "cluster %s: leader %s, term %d, feature level %s, %s, %s, %s (reported by %s)\n", printable(s.ClusterID), printable(leader), s.Term,
		orDash(s.FeatureLevel), count(s.Locks, "lock"), count(s.Waiters, "waiter"), count(s.Sessions, "session"), printable(s.Node))
	if s.GrantsHeld != "" {
		fmt.Fprintf(a.Out, "nothing is granted: %s%s\n", printable(s.GrantsHeld), atMost(s.GrantsHeldMS))
	}
	t := a.table()
	fmt.Fprintln(t, "NODE\tROLE\tHEALTH\tAPPLIED\tCLIENTS\tPEERS\tLEVEL\tZONE")
	for _, m := range s.Members {
		applied := "-"
		if m.AppliedIndex != nil {
			applied = fmt.Sprint(*m.AppliedIndex)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(m.Name), printable(m.Role), printable(m.Health),
			applied, printable(m.ClientAddress), printable(m.PeerAddress), orDash(m.FeatureLevel), cmp.Or(printable(m.Zone), "-"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if zone, voters, of := crowdedZone(s.Members); zone != "" {
		fmt.Fprintf(a.Out, "%d of %d voters are in zone %s: losing that zone would stop the cluster\n", voters, of, printable(zone))
	}
	for _, e := range s.Endpoints {
		if e.Error != "" {
			fmt.Fprintf(a.Out, "no status of %s: %s\n", printable(e.Endpoint), printable(e.Error))
		}
	}
	return nil
}

// crowdedZone finds the zone with a majority of the voters.
func crowdedZone(members []memberReport) (zone string, voters, of int) {
	var zones []string
	for _, m := range members {
		if m.Role != "learner" {
			zones = append(zones, m.Zone)
		}
	}
	zone, voters = replica.CrowdedZone(zones)
	return zone, voters, len(zones)
}

// count formats a number of things: "1 lock", "2 locks".
func count(n uint64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// orDash formats a level that may be unknown.
func orDash(level uint32) string {
	if level == 0 {
		return "-"
	}
	return strconv.FormatUint(uint64(level), 10)
}

// atMost says how long a state lasts, if known.
func atMost(ms uint64) string {
	if ms == 0 {
		return ""
	}
	return fmt.Sprintf("; at most %d s left", (ms+999)/1000)
}
