package protocol_test

import (
	"slices"
	"testing"

	"golang.org/x/text/unicode/norm"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// FuzzFromClient feeds wire bytes: a request that decodes is either within all bounds, or refused
// with an error that is safe to show.
func FuzzFromClient(f *testing.F) {
	for _, c := range badRequests {
		b, err := proto.Marshal(c.request)
		if err == nil && len(b) < 4096 {
			f.Add(b)
		}
	}
	for _, r := range []*pb.ClientRequest{named("a/b", "a/c"), opened(10_000, map[string]string{"host": "h"})} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &pb.ClientRequest{}
		if proto.Unmarshal(b, r) != nil {
			return
		}
		checkTranslation(t, r)
	})
}

type failer interface{ Errorf(string, ...any) }

func checkTranslation(t failer, r *pb.ClientRequest) {
	req, e := streamed(r)
	if e != nil {
		checkEcho(t, e)
		return
	}
	if req.Tag != r.GetTag() {
		t.Errorf("tag %d became %d", r.GetTag(), req.Tag)
	}
	switch b := req.Body.(type) {
	case lead.Open:
		if b.TTL < 1000 || b.TTL > 300_000 {
			t.Errorf("a TTL of %d ms was accepted", b.TTL)
		}
		checkLabels(t, b.Metadata)
	case lead.Acquire:
		checkSpec(t, b.Claim.Spec)
	case nil:
		t.Errorf("no body and no error for %v", r)
	}
}

func checkSpec(t failer, s command.Spec) {
	if len(s.Names) < 1 || len(s.Names) > 16 {
		t.Errorf("%d names were accepted", len(s.Names))
	}
	for _, n := range s.Names {
		if lockstep.CheckName(n) != nil || !norm.NFC.IsNormalString(n) {
			t.Errorf("the name %q was accepted", n)
		}
	}
	if s.Mode == command.Permits && (s.Weight < 1 || s.Weight > s.Capacity) || s.Mode != command.Permits && s.Capacity != 0 {
		t.Errorf("%d of %d permits were accepted in mode %d", s.Weight, s.Capacity, s.Mode)
	}
	checkLabels(t, s.Metadata)
}

func checkLabels(t failer, ls []command.Label) {
	total := 0
	for _, l := range ls {
		total += len(l.Key) + len(l.Value)
	}
	if total > 1024 {
		t.Errorf("%d bytes of metadata were accepted", total)
	}
	if !slices.IsSortedFunc(ls, func(a, b command.Label) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	}) {
		t.Errorf("labels are not sorted: %v", ls)
	}
}

func TestAcceptedRequestsAreWithinBounds(t *testing.T) {
	text := rapid.OneOf(rapid.StringN(0, 20, 40), rapid.SampledFrom([]string{"a", "a/b", "_a", "e\u0301", "a\n", "", "../x"}))
	labels := rapid.MapOfN(text, text, 0, 3)
	rapid.Check(t, func(t *rapid.T) {
		spec := &pb.ClaimSpec{
			Names:       rapid.SliceOfN(text, 0, 18).Draw(t, "names"),
			Mode:        pb.Mode(rapid.Int32Range(-1, 4).Draw(t, "mode")),
			Weight:      rapid.Uint32().Draw(t, "weight"),
			Capacity:    rapid.Uint32().Draw(t, "capacity"),
			LockDelayMs: rapid.Uint64().Draw(t, "delay"),
			Metadata:    labels.Draw(t, "metadata"),
		}
		if rapid.Bool().Draw(t, "wait?") {
			spec.WaitMs = proto.Uint64(rapid.Uint64().Draw(t, "wait"))
		}
		checkTranslation(t, claimOf(spec))
		checkTranslation(t, opened(rapid.Uint64().Draw(t, "ttl"), labels.Draw(t, "labels")))
	})
}

// FuzzPageToken checks that a token is refused or decodes to a valid name.
func FuzzPageToken(f *testing.F) {
	f.Add("YS9i")
	f.Add("!")
	f.Fuzz(func(t *testing.T, token string) {
		req, e := protocol.FromListLocks(&pb.ListLocksRequest{PageToken: token})
		if e != nil {
			checkEcho(t, e)
			return
		}
		if after := req.Body.(lead.ReadLocks).After; after != "" && lockstep.CheckName(after) != nil {
			t.Errorf("the token %q gave the name %q", token, after)
		}
	})
}
