package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// A lockReport describes a lock in the output of "show" and "ls".
type lockReport struct {
	Name        string        `json:"name"`
	Mode        string        `json:"mode"`
	Capacity    uint32        `json:"capacity,omitempty"` // of a semaphore
	Permits     uint64        `json:"permits_held,omitempty"`
	Holders     []claimReport `json:"holders"` // the earliest grant first; may be incomplete
	HolderCount uint64        `json:"holder_count"`
	Waiters     []claimReport `json:"waiters"` // the next one first; may be incomplete
	WaiterCount uint64        `json:"waiter_count"`
	NextToken   uint64        `json:"next_token"` // a lower bound of the next exclusive holder's token
}

// A claimReport is a holder or a waiter.
type claimReport struct {
	Session  string            `json:"session"`
	Seq      uint64            `json:"seq,omitempty"`   // the claim's number in its session; only from the service
	Token    uint64            `json:"token,omitempty"` // waiters have none
	Since    instant           `json:"since"`           // on the leader's wall clock
	Mode     string            `json:"mode"`
	Weight   uint32            `json:"weight,omitempty"` // of permits
	Metadata map[string]string `json:"metadata"`
	Closing  bool              `json:"closing,omitempty"` // ended, but the service still waits for the old holder
	Names    []string          `json:"names,omitempty"`   // if the claim has several
}

var modeNames = map[pb.Mode]string{
	pb.Mode_MODE_EXCLUSIVE: "exclusive",
	pb.Mode_MODE_SHARED:    "shared",
	pb.Mode_MODE_PERMITS:   "permits",
}

func reportLock(l *pb.Lock) lockReport {
	return lockReport{
		Name:        l.GetName(),
		Mode:        modeNames[l.GetMode()],
		Capacity:    l.GetCapacity(),
		Permits:     l.GetPermitsHeld(),
		Holders:     reportClaims(l.GetHolders()),
		HolderCount: max(l.GetHolderCount(), uint64(len(l.GetHolders()))), // an older node does not count them
		Waiters:     reportClaims(l.GetWaiters()),
		WaiterCount: l.GetWaiterCount(),
		NextToken:   l.GetNextToken(),
	}
}

func reportClaims(claims []*pb.Holder) []claimReport {
	reports := make([]claimReport, len(claims)) // never nil: [] in JSON
	for i, c := range claims {
		reports[i] = claimReport{
			Session:  c.GetSession(),
			Seq:      c.GetSeq(),
			Token:    c.GetToken(),
			Since:    instant{time.UnixMilli(int64(c.GetSinceUnixMs())).UTC()},
			Mode:     modeNames[c.GetMode()],
			Weight:   c.GetWeight(),
			Metadata: c.GetMetadata(),
			Closing:  c.GetClosing(),
		}
		if len(c.GetNames()) > 1 {
			reports[i].Names = c.GetNames()
		}
		if reports[i].Metadata == nil {
			reports[i].Metadata = map[string]string{}
		}
	}
	return reports
}

// reportState reports the state of a lock on another backend, which knows less than the service.
func reportState(s lockstep.State) lockReport {
	r := lockReport{
		Name: s.Name, Mode: lockstep.Exclusive.String(), NextToken: uint64(s.NextToken), WaiterCount: uint64(len(s.Waiters)),
		Holders: reportStateClaims(s.Holders), HolderCount: uint64(len(s.Holders)), Waiters: reportStateClaims(s.Waiters),
	}
	switch { // as the service does: the mode of the holder, else of the next waiter, and exclusive for a free lock
	case len(r.Holders) > 0:
		r.Mode = r.Holders[0].Mode
	case len(r.Waiters) > 0:
		r.Mode = r.Waiters[0].Mode
	}
	return r
}

func reportStateClaims(claims []lockstep.Claim) []claimReport {
	reports := make([]claimReport, len(claims)) // never nil: [] in JSON
	for i, c := range claims {
		reports[i] = claimReport{Session: c.Owner, Token: uint64(c.Token), Since: instant{c.Since.UTC()}, Mode: c.Mode.String(), Metadata: c.Metadata}
		if c.Metadata == nil {
			reports[i].Metadata = map[string]string{}
		}
	}
	return reports
}

// who describes the owner of the claim: where it runs and its purpose.
func (c claimReport) who() string {
	words := []string{}
	for _, key := range []string{"host", "pid", "purpose"} {
		if value := c.Metadata[key]; value != "" {
			words = append(words, key+" "+printable(value))
		}
	}
	if c.Closing {
		words = append(words, "(ended, not yet confirmed by its holder)")
	}
	return strings.Join(words, ", ")
}

// age returns how long ago t was, rounded for people. Clocks of two machines may differ, so it may
// be off, but it is never negative.
func age(now, t time.Time) string {
	d := max(0, now.Sub(t))
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// write prints the lock for people.
func (l lockReport) write(w io.Writer, now time.Time) {
	fmt.Fprintf(w, "%s: ", printable(l.Name))
	switch {
	case len(l.Holders) == 0:
		fmt.Fprint(w, "free")
	case l.Mode == "permits":
		fmt.Fprintf(w, "%d of %d permits held", max(l.Permits, l.weight()), l.Capacity)
	case l.Mode == "shared":
		fmt.Fprintf(w, "shared by %d", l.HolderCount)
	default:
		fmt.Fprint(w, "held")
	}
	fmt.Fprintf(w, ", %d waiting, next token %d\n", l.WaiterCount, l.NextToken)
	for _, h := range l.Holders {
		number := "token"
		if h.Mode == "permits" { // they have no order: the number only serves "revoke --token"
			number = "grant"
		}
		fmt.Fprintf(w, "  holder    %s %d, for %s, %s\n", number, h.Token, age(now, h.Since.Time), h.who())
		h.writeDetails(w)
	}
	if more := l.HolderCount - uint64(len(l.Holders)); more > 0 {
		fmt.Fprintf(w, "  and %d more holders\n", more)
	}
	for i, c := range l.Waiters {
		fmt.Fprintf(w, "  waiter %2d for %s, %s\n", i+1, age(now, c.Since.Time), c.who())
	}
	if more := l.WaiterCount - uint64(len(l.Waiters)); more > 0 && more < l.WaiterCount {
		fmt.Fprintf(w, "  and %d more: use --waiters to show them\n", more)
	}
}

func (l lockReport) weight() (sum uint64) {
	for _, h := range l.Holders {
		sum += uint64(h.Weight)
	}
	return sum
}

func (c claimReport) writeDetails(w io.Writer) {
	fmt.Fprintf(w, "            session %s\n", printable(c.Session))
	for _, key := range slices.Sorted(maps.Keys(c.Metadata)) {
		if !slices.Contains([]string{"host", "pid", "purpose"}, key) {
			fmt.Fprintf(w, "            %s: %s\n", printable(key), printable(c.Metadata[key]))
		}
	}
	if len(c.Names) > 1 {
		fmt.Fprintf(w, "            together with: %s\n", printable(strings.Join(c.Names, " ")))
	}
}
