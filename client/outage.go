package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// An OutageError is [lockstep.ErrUnavailable] with each endpoint's last answer.
type OutageError struct {
	// Answers are in the order of [Config.Endpoints].
	Answers []EndpointAnswer
	// Leaders are the answers of nodes that an endpoint names as the leader and that are not endpoints
	// themselves.
	Leaders []EndpointAnswer
}

// An EndpointAnswer is why an endpoint does not serve.
type EndpointAnswer struct {
	Endpoint string
	State    EndpointState
	Detail   string // more detail; with [Follows], the address of the leader
}

// An EndpointState is the kind of an EndpointAnswer.
type EndpointState int

// The states of an endpoint that does not serve.
const (
	NotAsked   EndpointState = iota
	Refuses                  // nothing is listening there
	Unresolved               // its host has no address
	Silent                   // it does not answer in time, or cannot be reached
	NoLeader                 // a node that knows no leader
	Follows                  // a node that names another one as the leader
	NotReady                 // a node that is temporarily not serving
	WrongPort                // something answers that is not a node's client port
	Failed                   // anything else
)

// phrases describe each state in words, for one endpoint and for several.
var phrases = map[EndpointState][2]string{
	NotAsked:   {"was not tried yet", "were not tried yet"},
	Refuses:    {"refuses connections", "refuse connections"},
	Unresolved: {"has a host name that cannot be resolved", "have host names that cannot be resolved"},
	Silent:     {"does not respond", "do not respond"},
	NoLeader:   {"knows no leader", "know no leader"},
	Follows:    {"names %s as the leader", "name %s as the leader"},
}

// Error implements error: one summary of all endpoints.
func (e *OutageError) Error() string { return lockstep.ErrUnavailable.Error() + ": " + e.Summary() }

// Is reports whether target is [lockstep.ErrUnavailable].
func (e *OutageError) Is(target error) bool { return target == lockstep.ErrUnavailable }

// Summary counts the endpoints by their answers: "no majority: 3 of 5 refuse connections, 2 know no
// leader".
func (e *OutageError) Summary() string {
	return strings.Join(append([]string{e.summary()}, texts(e.Leaders)...), ", and ")
}

func (e *OutageError) summary() string {
	if len(e.Answers) == 1 {
		return e.Answers[0].String()
	}
	groups := e.groups()
	total := len(e.Answers)
	if len(groups) == 1 {
		return fmt.Sprintf("all %d endpoints %s", total, groups[0].phrase())
	}
	var parts []string
	for i, g := range groups {
		switch {
		case len(g) == 1 && phrases[g[0].State][0] == "": // its detail stands alone
			parts = append(parts, g[0].String())
		case i == 0:
			parts = append(parts, fmt.Sprintf("%d of %d %s", len(g), total, g.phrase()))
		default:
			parts = append(parts, fmt.Sprintf("%d %s", len(g), g.phrase()))
		}
	}
	return e.title(groups) + ": " + strings.Join(parts, ", ")
}

// title is "no majority" only if a node says so.
func (e *OutageError) title(groups []answerGroup) string {
	down, lost := 0, false
	for _, g := range groups {
		switch g[0].State {
		case Refuses, Unresolved, Silent:
			down += len(g)
		case NoLeader:
			lost = true
		}
	}
	if lost && 2*down >= len(e.Answers) {
		return "no majority"
	}
	return "no node is serving"
}

// List names every endpoint with its answer: "n1:7400 refuses connections, n4:7400 knows no
// leader".
func (e *OutageError) List() string {
	return strings.Join(append(texts(e.Answers), texts(e.Leaders)...), ", ")
}

func texts(answers []EndpointAnswer) (list []string) {
	for _, a := range answers {
		list = append(list, a.String())
	}
	return list
}

// String is the endpoint and its answer.
func (a EndpointAnswer) String() string { return a.Endpoint + " " + answerGroup{a}.phrase() + a.hint() }

// hint says what listens by default on a port that does not answer as a client port.
func (a EndpointAnswer) hint() string {
	_, port, _ := net.SplitHostPort(a.Endpoint)
	use, known := map[string]string{"7401": "peers", "7402": "HTTP", "7403": "health checks"}[port]
	if a.State != Silent || !known {
		return ""
	}
	return fmt.Sprintf(" (%s is the default port for %s; clients use 7400)", port, use)
}

// An answerGroup holds answers that are reported as one.
type answerGroup []EndpointAnswer

func (g answerGroup) phrase() string {
	words, ok := phrases[g[0].State]
	if !ok {
		return g[0].Detail
	}
	text := words[min(len(g), 2)-1]
	if g[0].State == Follows {
		return fmt.Sprintf(text, g[0].Detail)
	}
	return text
}

// groups merges answers with the same wording, in the order of the states.
func (e *OutageError) groups() []answerGroup {
	byWords := map[string]answerGroup{}
	for _, a := range e.Answers {
		key := answerGroup{a}.phrase()
		byWords[key] = append(byWords[key], a)
	}
	groups := slices.Collect(maps.Values(byWords))
	slices.SortFunc(groups, func(a, b answerGroup) int {
		if d := int(a[0].State) - int(b[0].State); d != 0 {
			return d
		}
		return strings.Compare(a[0].Endpoint, b[0].Endpoint)
	})
	return groups
}

func isOutage(err error) bool {
	_, ok := errors.AsType[*OutageError](err)
	return ok
}

// OutageOf returns the outage that the results of [Admin.Status] show, or nil if a node answers and
// knows a leader.
func OutageOf(nodes []NodeStatus) *OutageError {
	var out OutageError
	for _, n := range nodes {
		e, ok := errors.AsType[*OutageError](n.Err)
		switch {
		case n.Err == nil && n.Status.GetLeader() != "":
			return nil
		case n.Err == nil:
			out.Answers = append(out.Answers, EndpointAnswer{n.Endpoint, NoLeader, ""})
		case ok:
			out.Answers = append(out.Answers, e.Answers...)
		default:
			out.Answers = append(out.Answers, EndpointAnswer{n.Endpoint, Failed, "fails: " + n.Err.Error()})
		}
	}
	return &out
}

// answerOf derives an answer from the error of a call or a stream.
func answerOf(endpoint string, err error) EndpointAnswer {
	if e := wireError(err); e != nil {
		return answerOfWire(endpoint, e)
	}
	if e, ok := errors.AsType[*ClusterError](err); ok {
		return EndpointAnswer{endpoint, Failed, "is of another cluster: " + e.Error()}
	}
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	switch {
	case strings.Contains(text, "connection refused"):
		return EndpointAnswer{endpoint, Refuses, ""}
	case strings.Contains(text, "produced zero addresses"), strings.Contains(text, "no such host"):
		return EndpointAnswer{endpoint, Unresolved, ""}
	case isHTTP(text):
		return EndpointAnswer{endpoint, WrongPort, "is " + httpPort(endpoint) + ": clients use the gRPC port of a node, 7400 by default"}
	case strings.HasPrefix(text, "this is the ") && strings.Contains(text, " port of a node: "): // the node says so itself
		return EndpointAnswer{endpoint, WrongPort, strings.TrimPrefix(text, "this ")}
	case strings.Contains(text, "error reading server preface"):
		return EndpointAnswer{endpoint, WrongPort, "is not the client port of a node, perhaps its peer port (7401 by default): clients use 7400 by default"}
	case isSilence(err, text):
		return EndpointAnswer{endpoint, Silent, ""}
	}
	return EndpointAnswer{endpoint, Failed, "fails: " + plain(text)}
}

// isHTTP reports whether gRPC complains about an HTTP server.
func isHTTP(text string) bool {
	for _, words := range []string{"looked like an HTTP/1.1 header", "http2: frame too large", "unexpected HTTP status code received", "malformed header: missing HTTP content-type"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

func httpPort(endpoint string) string {
	if _, port, _ := net.SplitHostPort(endpoint); port == "7403" {
		return "the port for health checks"
	}
	return "an HTTP port"
}

// isSilence reports whether nothing came back.
func isSilence(err error, text string) bool {
	code := status.Code(err)
	return code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errNoConnection) ||
		strings.Contains(text, "i/o timeout") || strings.Contains(text, "no route to host") || strings.Contains(text, "context deadline exceeded")
}

func answerOfWire(endpoint string, e *pb.Error) EndpointAnswer {
	text := e.GetMessage()
	if text == "" {
		text = e.GetReason().String()
	}
	switch leader := e.GetLeaderAddress(); {
	case e.GetReason() == pb.Reason_REASON_NOT_LEADER && leader == "":
		return EndpointAnswer{endpoint, NoLeader, ""}
	case e.GetReason() == pb.Reason_REASON_NOT_LEADER:
		return EndpointAnswer{endpoint, Follows, leader}
	case e.GetReason() == pb.Reason_REASON_UNAVAILABLE, e.GetReason() == pb.Reason_REASON_OVERLOADED:
		return EndpointAnswer{endpoint, NotReady, "is not serving at the moment: " + text}
	}
	return EndpointAnswer{endpoint, Failed, "fails: " + text}
}

// answerOfStatus derives an answer from a node's status; it is the zero answer if the node serves.
func answerOfStatus(endpoint string, s *pb.StatusResponse) EndpointAnswer {
	switch leader := cmp.Or(s.GetLeaderAddress(), s.GetLeader()); {
	case leader == "":
		return EndpointAnswer{endpoint, NoLeader, ""}
	case s.GetLeader() == s.GetNode() || leader == endpoint:
		return EndpointAnswer{}
	default:
		return EndpointAnswer{endpoint, Follows, leader}
	}
}

// A tally holds the last answers of a client's endpoints. It is safe for concurrent use.
type tally struct {
	endpoints []string

	mu struct {
		sync.Mutex
		answers map[string]EndpointAnswer // of endpoints and of leaders that they name, since a node last served
		out     bool                      // the last node that was tried did not serve
	}
}

func newTally(endpoints []string) *tally {
	t := &tally{endpoints: endpoints}
	t.mu.answers = map[string]EndpointAnswer{}
	return t
}

// failed records why a needed node did not serve.
func (t *tally) failed(a EndpointAnswer) {
	t.heard(a)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.out = true
}

// heard records what a node answered to a mere status request.
func (t *tally) heard(a EndpointAnswer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(t.endpoints, a.Endpoint) || slices.Contains(t.leadersLocked(), a.Endpoint) {
		t.mu.answers[a.Endpoint] = a
	}
}

// leadersLocked are the nodes that an endpoint names as the leader and that are not endpoints.
func (t *tally) leadersLocked() (leaders []string) {
	for _, endpoint := range t.endpoints {
		a := t.mu.answers[endpoint]
		if a.State == Follows && !slices.Contains(t.endpoints, a.Detail) && !slices.Contains(leaders, a.Detail) {
			leaders = append(leaders, a.Detail)
		}
	}
	return leaders
}

// served notes that a node serves.
func (t *tally) served() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.out = false
	clear(t.mu.answers)
}

// outage returns the answers of the endpoints, or nil while a node serves or none was tried.
func (t *tally) outage() *OutageError {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.out {
		return nil
	}
	var e OutageError
	for _, endpoint := range t.endpoints {
		a := t.mu.answers[endpoint]
		a.Endpoint = endpoint
		e.Answers = append(e.Answers, a)
	}
	for _, leader := range t.leadersLocked() {
		if a, asked := t.mu.answers[leader]; asked {
			e.Leaders = append(e.Leaders, a)
		}
	}
	return &e
}

// summary returns err or, if the service is unavailable, what all endpoints answered instead.
func (t *tally) summary(err error) error {
	if !errors.Is(err, lockstep.ErrUnavailable) {
		return err
	}
	if e := t.outage(); e != nil {
		return e
	}
	return err
}

// Outage returns what each endpoint answered last while no node serves this client. It is nil while
// one does, and before one was tried.
func (c *Client) Outage() *OutageError {
	c.mu.Lock()
	attached, guests := c.mu.attached, slices.Clone(c.mu.guests)
	c.mu.Unlock()
	for _, guest := range guests {
		if e := guest.Outage(); e != nil {
			return e
		}
	}
	if attached {
		return nil
	}
	return c.guard.tally.outage()
}

// Outage returns what each endpoint answered last while none serves. It is nil while one does, and
// before one was tried.
func (a *Admin) Outage() *OutageError { return a.guard.tally.outage() }
