package protocol_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

const someID = "0123456789abcdef0123456789abcdef"

var someSecret = bytes.Repeat([]byte{7}, 16)

// random is a source of the bytes 0, 1, 2 and so on.
type random struct{ next byte }

func (r *random) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = r.next
		r.next++
	}
	return len(b), nil
}

func streamed(r *pb.ClientRequest) (lead.Request, *pb.Error) {
	return protocol.FromClient(5, 6, r, &random{})
}

func claimOf(spec *pb.ClaimSpec) *pb.ClientRequest {
	return &pb.ClientRequest{Tag: 9, Session: someID, Body: &pb.ClientRequest_Acquire{Acquire: &pb.StreamAcquire{Seq: 1, Spec: spec}}}
}

func named(names ...string) *pb.ClientRequest { return claimOf(&pb.ClaimSpec{Names: names}) }

func opened(ttl uint64, metadata map[string]string) *pb.ClientRequest {
	return &pb.ClientRequest{Body: &pb.ClientRequest_Open{Open: &pb.StreamOpen{TtlMs: ttl, Metadata: metadata}}}
}

func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = "jobs/" + strings.Repeat("x", i+1)
	}
	return names
}

// badRequests are requests that break one rule each.
var badRequests = []struct {
	name    string
	request *pb.ClientRequest
	reason  pb.Reason
	field   string
	says    string
}{
	{"no body", &pb.ClientRequest{Session: someID}, pb.Reason_REASON_UNSUPPORTED, "body", "does not support"},
	{"no name", named(), pb.Reason_REASON_INVALID_ARGUMENT, "spec.names", "1 to 16"},
	{"no spec", claimOf(nil), pb.Reason_REASON_INVALID_ARGUMENT, "spec.names", "1 to 16"},
	{"an empty name", named(""), pb.Reason_REASON_INVALID_NAME, "spec.names", "must not be empty"},
	{"a name of 513 bytes", named(strings.Repeat("x", 513)), pb.Reason_REASON_INVALID_NAME, "spec.names", "is 513 bytes long, the limit is 512"},
	{"a name of 1 MB", named(strings.Repeat("x", 1<<20)), pb.Reason_REASON_QUOTA_EXCEEDED, "request", "the limit is 65536"},
	{"NUL in a name", named("a\x00b"), pb.Reason_REASON_INVALID_NAME, "spec.names", `'\x00'`},
	{"a newline in a name", named("a\nb"), pb.Reason_REASON_INVALID_NAME, "spec.names", `'\n'`},
	{"an escape sequence in a name", named("a\x1b[31mb"), pb.Reason_REASON_INVALID_NAME, "spec.names", `'\x1b'`},
	{"a name that is not UTF-8", named("a\xffb"), pb.Reason_REASON_INVALID_NAME, "spec.names", "valid UTF-8"},
	{"a segment ..", named("a/../b"), pb.Reason_REASON_INVALID_NAME, "spec.names", `".."`},
	{"a segment .", named("./a"), pb.Reason_REASON_INVALID_NAME, "spec.names", `"."`},
	{"an empty segment", named("a//b"), pb.Reason_REASON_INVALID_NAME, "spec.names", `"//"`},
	{"a leading slash", named("/a"), pb.Reason_REASON_INVALID_NAME, "spec.names", `"/"`},
	{"a trailing slash", named("a/"), pb.Reason_REASON_INVALID_NAME, "spec.names", `"/"`},
	{"a zero-width space", named("a\u200bb"), pb.Reason_REASON_INVALID_NAME, "spec.names", `\u200b`},
	{"a text direction override", named("a\u202eb"), pb.Reason_REASON_INVALID_NAME, "spec.names", `\u202e`},
	{"a leading space", named(" a"), pb.Reason_REASON_INVALID_NAME, "spec.names", "space"},
	{"a trailing space", named("a "), pb.Reason_REASON_INVALID_NAME, "spec.names", "space"},
	{"a name that is not in NFC", named("cafe\u0301"), pb.Reason_REASON_INVALID_NAME, "spec.names", "NFC"},
	{"a reserved namespace", named("_sys/x"), pb.Reason_REASON_RESERVED_NAME, "spec.names", "reserved"},
	{"a reserved namespace and a broken name", named("_sys/\n"), pb.Reason_REASON_INVALID_NAME, "spec.names", ""},
	{"17 names", named(numbered(17)...), pb.Reason_REASON_INVALID_ARGUMENT, "spec.names", "has 17 names, the limit is 16"},
	{"a repeated name", named("a/b", "a/c", "a/b"), pb.Reason_REASON_INVALID_ARGUMENT, "spec.names", `"a/b"`},
	{"names in two namespaces", named("a/x", "b/x"), pb.Reason_REASON_INVALID_ARGUMENT, "spec.names", `must share the first segment "a"`},
	{"two names shared", claimOf(&pb.ClaimSpec{Names: []string{"a/x", "a/y"}, Mode: pb.Mode_MODE_SHARED}), pb.Reason_REASON_INVALID_ARGUMENT, "spec.names", "exclusive"},
	{"an unknown mode", claimOf(&pb.ClaimSpec{Names: []string{"a"}, Mode: 7}), pb.Reason_REASON_INVALID_ARGUMENT, "spec.mode", "7"},
	{"permits in exclusive mode", claimOf(&pb.ClaimSpec{Names: []string{"a"}, Weight: 1, Capacity: 2}), pb.Reason_REASON_INVALID_ARGUMENT, "spec.weight", "MODE_PERMITS"},
	{"no permits", claimOf(&pb.ClaimSpec{Names: []string{"a"}, Mode: pb.Mode_MODE_PERMITS, Capacity: 2}), pb.Reason_REASON_INVALID_ARGUMENT, "spec.weight", "1 <= weight"},
	{"more permits than there are", claimOf(&pb.ClaimSpec{Names: []string{"a"}, Mode: pb.Mode_MODE_PERMITS, Weight: 3, Capacity: 2}), pb.Reason_REASON_INVALID_ARGUMENT, "spec.weight", "weight <= capacity"},
	{"too many permits", claimOf(&pb.ClaimSpec{Names: []string{"a"}, Mode: pb.Mode_MODE_PERMITS, Weight: 3, Capacity: math.MaxUint32}), pb.Reason_REASON_INVALID_ARGUMENT, "spec.weight", "1048576"},
	{"a wait that would wrap around", claimOf(&pb.ClaimSpec{Names: []string{"a"}, WaitMs: proto.Uint64(math.MaxUint64)}), pb.Reason_REASON_OUT_OF_RANGE, "spec.wait_ms", "31536000000"},
	{"a lock delay above an hour", claimOf(&pb.ClaimSpec{Names: []string{"a"}, LockDelayMs: 3_600_001}), pb.Reason_REASON_OUT_OF_RANGE, "spec.lock_delay_ms", "is 3600001 ms, must be 0 ms to 3600000 ms"},
	{"metadata of 1025 bytes", claimOf(&pb.ClaimSpec{Names: []string{"a"}, Metadata: map[string]string{"k": strings.Repeat("v", 1024)}}), pb.Reason_REASON_INVALID_METADATA, "spec.metadata", "is 1025 bytes long, the limit is 1024"},
	{"metadata of 64 KiB", claimOf(&pb.ClaimSpec{Names: []string{"a"}, Metadata: map[string]string{"k": strings.Repeat("v", 64<<10)}}), pb.Reason_REASON_QUOTA_EXCEEDED, "request", "65536"},
	{"an empty metadata key", opened(1000, map[string]string{"": "v"}), pb.Reason_REASON_INVALID_METADATA, "metadata", "empty"},
	{"an escape sequence in metadata", opened(1000, map[string]string{"k": "\x1b]0;x\x07"}), pb.Reason_REASON_INVALID_METADATA, "metadata", "printable"},
	{"a TTL of zero", opened(0, nil), pb.Reason_REASON_INVALID_ARGUMENT, "ttl_ms", "must not be 0"},
	{"a TTL of 1 ms", opened(1, nil), pb.Reason_REASON_OUT_OF_RANGE, "ttl_ms", "is 1 ms, must be 1000 ms to 300000 ms"},
	{"a TTL above the limit", opened(300_001, nil), pb.Reason_REASON_OUT_OF_RANGE, "ttl_ms", "300000"},
	{"the largest int64 as the TTL", opened(math.MaxInt64, nil), pb.Reason_REASON_OUT_OF_RANGE, "ttl_ms", "300000"},
	{"a TTL that would wrap around in nanoseconds", opened(18_446_744_073_710, nil), pb.Reason_REASON_OUT_OF_RANGE, "ttl_ms", "300000"},
	{"an Open with a session", &pb.ClientRequest{Session: someID, Body: &pb.ClientRequest_Open{Open: &pb.StreamOpen{TtlMs: 1000}}}, pb.Reason_REASON_INVALID_ARGUMENT, "session", "empty"},
	{"no session", &pb.ClientRequest{Body: &pb.ClientRequest_Close{}}, pb.Reason_REASON_SESSION_UNKNOWN, "session", "no such session"},
	{"session zero", &pb.ClientRequest{Session: strings.Repeat("0", 32), Body: &pb.ClientRequest_Close{}}, pb.Reason_REASON_SESSION_UNKNOWN, "session", "no such session"},
	{"a session that is not hexadecimal", &pb.ClientRequest{Session: strings.Repeat("x", 32), Body: &pb.ClientRequest_Close{}}, pb.Reason_REASON_SESSION_UNKNOWN, "session", "no such session"},
	{"a session that is too long", &pb.ClientRequest{Session: someID + "0", Body: &pb.ClientRequest_Close{}}, pb.Reason_REASON_SESSION_UNKNOWN, "session", "no such session"},
	{"a secret of the wrong length", &pb.ClientRequest{Session: someID, Body: &pb.ClientRequest_Attach{Attach: &pb.StreamAttach{Number: 2, Secret: someSecret[:15]}}}, pb.Reason_REASON_SESSION_UNKNOWN, "session", "wrong secret"},
	{"an attachment without a number", &pb.ClientRequest{Session: someID, Body: &pb.ClientRequest_Attach{Attach: &pb.StreamAttach{Secret: someSecret}}}, pb.Reason_REASON_INVALID_ARGUMENT, "number", "0"},
	{"a claim without a number", &pb.ClientRequest{Session: someID, Body: &pb.ClientRequest_Acquire{Acquire: &pb.StreamAcquire{Spec: &pb.ClaimSpec{Names: []string{"a"}}}}}, pb.Reason_REASON_INVALID_ARGUMENT, "seq", "0"},
	{"a cancel without a number", &pb.ClientRequest{Session: someID, Body: &pb.ClientRequest_Cancel{}}, pb.Reason_REASON_INVALID_ARGUMENT, "seq", "0"},
	{"a release without a number", &pb.ClientRequest{Session: someID, Body: &pb.ClientRequest_Release{Release: &pb.StreamRelease{Token: 1}}}, pb.Reason_REASON_INVALID_ARGUMENT, "seq", "0"},
	{"a release of token zero", &pb.ClientRequest{Session: someID, Body: &pb.ClientRequest_Release{Release: &pb.StreamRelease{Seq: 1}}}, pb.Reason_REASON_INVALID_ARGUMENT, "token", "0"},
}

func TestABadRequestIsRefusedWithItsFieldRuleAndLimit(t *testing.T) {
	for _, c := range badRequests {
		t.Run(c.name, func(t *testing.T) {
			_, e := streamed(c.request)
			if e == nil {
				t.Fatal("it was accepted")
			}
			if e.GetReason() != c.reason || e.GetField() != c.field || !strings.Contains(e.GetMessage(), c.says) {
				t.Errorf("got %v of %q: %s\nwant %v of %q, saying %q", e.GetReason(), e.GetField(), e.GetMessage(), c.reason, c.field, c.says)
			}
			checkEcho(t, e)
		})
	}
}

// checkEcho checks that an error can be shown on a terminal and does not grow with its cause.
func checkEcho(t interface{ Errorf(string, ...any) }, e *pb.Error) {
	if len(e.GetMessage()) > 512 { // 64 bytes escaped are at most 256
		t.Errorf("the message has %d bytes: %s", len(e.GetMessage()), e.GetMessage())
	}
	for _, r := range e.GetMessage() {
		if r < ' ' || r > '~' {
			t.Errorf("the message has the raw character %q: %q", r, e.GetMessage())
		}
	}
}

func TestGoodNamesAreAccepted(t *testing.T) {
	for _, name := range []string{
		"a", strings.Repeat("x", 512), "billing/nightly", "caf\u00e9", "--help", "-", "*", "%s", "$(x)", "A", "a b/c",
		"\u0430", // Cyrillic a: a different name than "a"
		"..a", "a.b", "x/_y",
	} {
		if _, e := streamed(named(name)); e != nil {
			t.Errorf("%q: %s", name, e.GetMessage())
		}
	}
}

func TestARequestIsTranslatedFieldByField(t *testing.T) {
	spec := &pb.ClaimSpec{
		Names: []string{"pool/db"}, Mode: pb.Mode_MODE_PERMITS, Weight: 2, Capacity: 3,
		WaitMs: proto.Uint64(0), LockDelayMs: 5, Metadata: map[string]string{"pid": "7", "host": "h"},
	}
	got, e := streamed(&pb.ClientRequest{Tag: 9, Session: someID, Body: &pb.ClientRequest_Acquire{Acquire: &pb.StreamAcquire{Seq: 4, Floor: 3, Seen: 2, Spec: spec}}})
	if e != nil {
		t.Fatal(e)
	}
	id, _ := command.ParseSessionID(someID)
	expect(t, got, lead.Request{Stream: 5, Tag: 9, Received: 6, Session: id, Body: lead.Acquire{Claim: command.Acquire{
		Session: id, Seq: 4, Floor: 3, Seen: 2,
		Spec: command.Spec{
			Names: []string{"pool/db"}, Mode: command.Permits, Weight: 2, Capacity: 3, HasWait: true, LockDelay: 5,
			Metadata: []command.Label{{Key: "host", Value: "h"}, {Key: "pid", Value: "7"}},
		},
	}}})
}

func TestEveryKindOfRequestHasItsBody(t *testing.T) {
	id, _ := command.ParseSessionID(someID)
	secret := command.Secret(someSecret)
	for _, c := range []struct {
		name string
		in   *pb.ClientRequest
		want lead.Body
	}{
		{"attach", &pb.ClientRequest{Body: &pb.ClientRequest_Attach{Attach: &pb.StreamAttach{Secret: someSecret, Number: 2, Seen: 3}}}, lead.Attach{Secret: secret, Number: 2, Seen: 3}},
		{"keepalive", &pb.ClientRequest{Body: &pb.ClientRequest_KeepAlive{KeepAlive: &pb.StreamKeepAlive{Number: 8}}}, lead.KeepAlive{Number: 8}},
		{"cancel", &pb.ClientRequest{Body: &pb.ClientRequest_Cancel{Cancel: &pb.StreamCancel{Seq: 1, Floor: 2, Seen: 3}}}, lead.Cancel{Claim: command.Cancel{Session: id, Seq: 1, Floor: 2, Seen: 3}}},
		{"release", &pb.ClientRequest{Body: &pb.ClientRequest_Release{Release: &pb.StreamRelease{Seq: 1, Token: 2}}}, lead.Release{Claim: command.Release{Session: id, Seq: 1, Token: 2}}},
		{"close", &pb.ClientRequest{Body: &pb.ClientRequest_Close{}}, lead.Close{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in.Session = someID
			got, e := streamed(c.in)
			if e != nil {
				t.Fatal(e)
			}
			expect(t, got, lead.Request{Stream: 5, Received: 6, Session: id, Body: c.want})
		})
	}
}

func TestAnOpenDrawsItsSecretsFromTheSourceGiven(t *testing.T) {
	got, e := streamed(opened(uint64(lockstep.MaxTTL.Milliseconds()), nil))
	if e != nil {
		t.Fatal(e)
	}
	open := got.Body.(lead.Open)
	if open.Random != [8]byte{0, 1, 2, 3, 4, 5, 6, 7} || open.Secret[0] != 8 || open.Secret[15] != 23 {
		t.Errorf("random %v secret %v", open.Random, open.Secret)
	}
	if !open.Attach || !open.ClientNumbered || open.TTL != 300_000 {
		t.Errorf("got %+v, want a client-numbered session of 300 s attached to the stream", open)
	}
}
