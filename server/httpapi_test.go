package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/lockstep-dev/lockstep/server"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// A curl makes requests to the JSON API of one node.
type curl struct {
	t    *testing.T
	base string
	http *http.Client
}

func newCurl(t *testing.T, s *server.Server) *curl {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &curl{t: t, base: "http://" + s.Addresses().HTTP, http: &http.Client{Transport: tr}}
}

// do makes a request and reads the JSON answer.
func (c *curl) do(method, path, kind, body string) (int, map[string]any) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", "192.0.2.1") // anyone can send this
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(text, &out); err != nil {
		c.t.Fatalf("%s %s: the answer %q is not JSON: %v", method, path, text, err)
	}
	return resp.StatusCode, out
}

func (c *curl) post(path, body string) map[string]any {
	c.t.Helper()
	code, out := c.do(http.MethodPost, path, "application/json", body)
	if code != http.StatusOK {
		c.t.Fatalf("POST %s: %d %v", path, code, out)
	}
	return out
}

func (c *curl) get(path string) map[string]any {
	c.t.Helper()
	code, out := c.do(http.MethodGet, path, "", "")
	if code != http.StatusOK {
		c.t.Fatalf("GET %s: %d %v", path, code, out)
	}
	return out
}

// session opens a session, and returns the path of its calls and the beginning of their bodies.
func (c *curl) session() (path, proof string) {
	c.t.Helper()
	s := c.post("/v1/sessions", `{"ttl_ms":"60000"}`)
	return "/v1/sessions/" + s["session"].(string), `{"secret":"` + s["secret"].(string) + `"`
}

func startAlone(t *testing.T) *server.Server {
	s := alone(t)
	start(t, s.Run)
	serving(t, s)
	return s
}

func claimOf(t *testing.T, out map[string]any) (seq, token string) {
	t.Helper()
	claim, ok := out["claim"].(map[string]any)
	if !ok {
		t.Fatalf("no claim in %v", out)
	}
	seq, _ = claim["seq"].(string)
	token, _ = claim["token"].(string)
	if seq == "" || token == "" || token == "0" {
		t.Fatalf("seq and token are not decimal strings in %v", out)
	}
	return seq, token
}

func TestTheJSONAPIServesALockFromItsGrantToItsHistory(t *testing.T) {
	t.Parallel()
	c := newCurl(t, startAlone(t))
	a, aProof := c.session()
	b, bProof := c.session()
	seq, token := claimOf(t, c.post(a+"/acquire", aProof+`,"spec":{"names":["billing/nightly"],"wait_ms":"1000"}}`))

	granted := make(chan map[string]any, 1)
	go func() {
		granted <- c.post(b+"/acquire", bProof+`,"spec":{"names":["billing/nightly"],"wait_ms":"30000"}}`)
	}()
	eventually(t, func() error {
		lock := c.get("/v1/locks/billing/nightly")["lock"].(map[string]any)
		if len(lock["holders"].([]any)) != 1 || len(lock["waiters"].([]any)) != 1 {
			return context.DeadlineExceeded
		}
		return nil
	})
	if n := len(c.get("/v1/sessions?page_size=5")["sessions"].([]any)); n != 2 {
		t.Errorf("%d sessions, want 2", n)
	}
	if n := len(c.get("/v1/locks?prefix=billing/")["locks"].([]any)); n != 1 {
		t.Errorf("%d locks, want 1", n)
	}
	c.post(a+"/keepalive", aProof+`}`)
	c.post(a+"/release", aProof+`,"seq":"`+seq+`","token":"`+token+`"}`)
	seq2, token2 := claimOf(t, <-granted)
	if len(token2) < len(token) || token2 <= token {
		t.Errorf("token %s after %s", token2, token)
	}
	c.post(b+"/cancel", bProof+`,"seq":"`+seq2+`"}`)
	if n := len(c.get("/v1/history/billing/nightly")["events"].([]any)); n != 5 {
		t.Errorf("%d events, want granted, queued, released, granted, cancelled", n)
	}
	if st := c.get("/v1/status"); st["node"] != "n1" {
		t.Errorf("status %v", st)
	}
	claimOf(t, c.post(a+"/acquire", aProof+`,"spec":{"names":["billing/nightly"]}}`))
	if r := c.post("/v1/revoke", `{"name":"billing/nightly","reason":"test"}`); r["revoked"] != float64(1) {
		t.Errorf("revoked %v, want 1", r)
	}
	events := c.get("/v1/history/billing/nightly?limit=1")["events"].([]any)
	if e := events[0].(map[string]any); e["kind"] != "EVENT_KIND_REVOKED" || e["by"] != "127.0.0.1" {
		t.Errorf("the end of the history is %v; want revoked by the address of the caller", e)
	}
	c.post(a+"/close", aProof+`}`)
}

func TestBadRequestsOverHTTPAreExplained(t *testing.T) {
	t.Parallel()
	c := newCurl(t, startAlone(t))
	path, proof := c.session()
	seq, token := claimOf(t, c.post(path+"/acquire", proof+`,"spec":{"names":["held"]}}`))
	const sent = "application/json"
	acquire := func(spec string) string { return proof + `,"spec":` + spec + `}` }
	for _, row := range []struct {
		name, method, path, kind, body string
		status                         int
		reason, field                  string
	}{
		{"an empty name", "POST", path + "/acquire", sent, acquire(`{"names":[""]}`), 400, "INVALID_NAME", "spec.names"},
		{"an empty name in the path", "GET", "/v1/locks/", "", "", 400, "INVALID_NAME", "name"},
		{"a name of 513 bytes", "GET", "/v1/locks/" + strings.Repeat("a", 513), "", "", 400, "INVALID_NAME", "name"},
		{"a name of a megabyte", "POST", path + "/acquire", sent, acquire(`{"names":["` + strings.Repeat("a", 1<<20) + `"]}`), 413, "QUOTA_EXCEEDED", "body"},
		{"a control character", "GET", "/v1/locks/a%1bb", "", "", 400, "INVALID_NAME", "name"},
		{"a name that is not UTF-8", "GET", "/v1/locks/a%ffb", "", "", 400, "INVALID_ARGUMENT", "path"},
		{"JSON that is not UTF-8", "POST", path + "/acquire", sent, acquire("{\"names\":[\"a\xff\"]}"), 400, "INVALID_ARGUMENT", "body"},
		{"a segment that is empty", "GET", "/v1/locks/a//b", "", "", 400, "INVALID_NAME", "name"},
		{"a name that climbs", "GET", "/v1/locks/a/%2e%2e/b", "", "", 400, "INVALID_NAME", "name"},
		{"a space at the end", "GET", "/v1/locks/a%20", "", "", 400, "INVALID_NAME", "name"},
		{"a reserved name", "GET", "/v1/locks/_sys/a", "", "", 403, "RESERVED_NAME", "name"},
		{"a negative TTL", "POST", "/v1/sessions", sent, `{"ttl_ms":"-1"}`, 400, "INVALID_ARGUMENT", "body"},
		{"a TTL of 1 ms", "POST", "/v1/sessions", sent, `{"ttl_ms":1}`, 400, "OUT_OF_RANGE", "ttl_ms"},
		{"a TTL that wraps around", "POST", "/v1/sessions", sent, `{"ttl_ms":"18446744073709551615"}`, 400, "OUT_OF_RANGE", "ttl_ms"},
		{"a try that is busy", "POST", path + "/acquire", sent, acquire(`{"names":["held"],"wait_ms":0}`), 409, "BUSY", "claim"},
		{"an unknown session", "POST", "/v1/sessions/" + strings.Repeat("0", 32) + "/keepalive", sent, proof + `}`, 404, "SESSION_UNKNOWN", "session"},
		{"a session that is none", "POST", "/v1/sessions/1/keepalive", sent, proof + `}`, 404, "SESSION_UNKNOWN", "session"},
		{"a wrong secret", "POST", path + "/keepalive", sent, `{"secret":"AAAAAAAAAAAAAAAAAAAAAA=="}`, 404, "SESSION_UNKNOWN", "session"},
		{"a made-up token", "POST", path + "/release", sent, proof + `,"seq":"` + seq + `","token":"` + token + `0"}`, 400, "NOT_HELD", "token"},
		{"metadata that is too big", "POST", "/v1/sessions", sent, `{"metadata":{"k":"` + strings.Repeat("v", 5000) + `"}}`, 400, "INVALID_METADATA", "metadata"},
		{"deep JSON", "POST", "/v1/sessions", sent, `{"metadata":` + strings.Repeat("[", 20_000), 400, "INVALID_ARGUMENT", "body"},
		{"a mode that is none", "POST", path + "/acquire", sent, acquire(`{"names":["a"],"mode":"MODE_X"}`), 400, "INVALID_ARGUMENT", "body"},
		{"a revocation without reason", "POST", "/v1/revoke", sent, `{"name":"held"}`, 400, "INVALID_ARGUMENT", "reason"},
		{"an unknown field", "POST", "/v1/sessions", sent, `{"ttl":"1s"}`, 400, "INVALID_ARGUMENT", "body"},
		{"a field that is there twice", "POST", "/v1/sessions", sent, `{"ttl_ms":5000,"ttl_ms":6000}`, 400, "INVALID_ARGUMENT", "body"},
		{"something behind the JSON", "POST", "/v1/sessions", sent, `{} {}`, 400, "INVALID_ARGUMENT", "body"},
		{"no JSON", "POST", "/v1/sessions", sent, `ttl=1`, 400, "INVALID_ARGUMENT", "body"},
		{"a form", "POST", "/v1/sessions", "application/x-www-form-urlencoded", `ttl_ms=5000`, 415, "INVALID_ARGUMENT", "Content-Type"},
		{"no content type", "POST", "/v1/sessions", "", `{}`, 415, "INVALID_ARGUMENT", "Content-Type"},
		{"a wrong path", "GET", "/v1/lock", "", "", 404, "UNSUPPORTED", "path"},
		{"a wrong verb", "DELETE", "/v1/sessions", "", "", 405, "UNSUPPORTED", "method"},
		{"a read by POST", "POST", "/v1/locks", sent, `{}`, 405, "UNSUPPORTED", "method"},
		{"an unknown parameter", "GET", "/v1/locks?prefx=a", "", "", 400, "INVALID_ARGUMENT", "query"},
		{"a parameter that is there twice", "GET", "/v1/locks?prefix=a&prefix=b", "", "", 400, "INVALID_ARGUMENT", "query"},
		{"a page that is too big", "GET", "/v1/locks?page_size=1001", "", "", 400, "OUT_OF_RANGE", "page_size"},
		{"a page token that is none", "GET", "/v1/sessions?page_token=x", "", "", 400, "INVALID_ARGUMENT", "page_token"},
		{"a watch of no number", "GET", "/v1/watch?after=x", "", "", 400, "INVALID_ARGUMENT", "query"},
	} {
		status, e := c.do(row.method, row.path, row.kind, row.body)
		field, _ := e["field"].(string)
		if status != row.status || e["reason"] != row.reason || field != row.field || e["message"] == "" || e["code"] == "" {
			t.Errorf("%s: %d %v; want %d, %s, field %q", row.name, status, e, row.status, row.reason, row.field)
		}
	}
	if status, e := c.do("POST", path+"/acquire", sent, acquire(`{"names":["held"],"wait_ms":0}`)); status != 409 || len(e["holders"].([]any)) != 1 {
		t.Errorf("a busy lock: %v; want its holder", e)
	}
}

func TestAWaitWhoseClientHangsUpIsCancelled(t *testing.T) {
	t.Parallel()
	c := newCurl(t, startAlone(t))
	path, proof := c.session()
	claimOf(t, c.post(path+"/acquire", proof+`,"spec":{"names":["job"]}}`))
	waiters := func(n int) {
		t.Helper()
		eventually(t, func() error {
			if lock := c.get("/v1/locks/job")["lock"].(map[string]any); len(lock["waiters"].([]any)) != n {
				return context.DeadlineExceeded
			}
			return nil
		})
	}
	ctx, hangUp := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path+"/acquire", strings.NewReader(proof+`,"spec":{"names":["job"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	done := make(chan error, 1)
	go func() {
		resp, err := c.http.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	waiters(1)
	hangUp()
	if err := <-done; err == nil {
		t.Error("the wait was answered")
	}
	waiters(0)
}

// An sse reads server-sent events.
type sse struct {
	t    *testing.T
	body io.ReadCloser
	in   *bufio.Scanner
}

func (c *curl) watch(query string) *sse {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.base+"/v1/watch"+query, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { resp.Body.Close() })
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || kind != "text/event-stream" {
		c.t.Fatalf("watch: %d, %s", resp.StatusCode, kind)
	}
	return &sse{t: c.t, body: resp.Body, in: bufio.NewScanner(resp.Body)}
}

func (s *sse) next() (id, kind, data string) {
	s.t.Helper()
	for s.in.Scan() {
		name, value, _ := strings.Cut(s.in.Text(), ": ")
		switch name {
		case "id":
			id = value
		case "event":
			kind = value
		case "data":
			data = value
		case "":
			return id, kind, data
		}
	}
	s.t.Fatalf("the watch ended: %v", s.in.Err())
	return "", "", ""
}

func TestWatchOverHTTPSendsEventsAndResumes(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	c, cluster := newCurl(t, s), s.Status().ClusterID
	path, proof := c.session()
	w := c.watch("?prefix=team/")
	begin, kind, _ := w.next()
	begin, whole := strings.CutPrefix(begin, cluster+":")
	if kind != "reached" || !whole {
		t.Fatalf("the watch begins with %q and id %q, want that of cluster %s", kind, begin, cluster)
	}
	claimOf(t, c.post(path+"/acquire", proof+`,"spec":{"names":["other"]}}`))
	seq, token := claimOf(t, c.post(path+"/acquire", proof+`,"spec":{"names":["team/job"]}}`))
	c.post(path+"/release", proof+`,"seq":"`+seq+`","token":"`+token+`"}`)
	for range 2 {
		if begin == "0" {
			begin = "1" // nothing had happened: number 0 means now
		}
		for _, want := range []string{"granted", "released"} {
			id, kind, data := w.next()
			for kind == "reached" {
				id, kind, data = w.next()
			}
			var e map[string]any
			if err := json.Unmarshal([]byte(data), &e); err != nil || kind != want || e["name"] != "team/job" || e["token"] != token || id != fmt.Sprint(cluster, ":", e["number"]) {
				t.Errorf("event %s %s %s, %v; want %s of token %s", id, kind, data, err, want, token)
			}
		}
		w = c.watch("?prefix=team/&after=" + begin) // the same events again
	}
}

func TestAnHTTPCallTellsAndTakesTheCluster(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	c, own := newCurl(t, s), s.Status().ClusterID
	path, proof := c.session()
	claimOf(t, c.post(path+"/acquire", proof+`,"spec":{"names":["job"]}}`))
	other := strings.Repeat("ab", 16)
	for _, call := range []struct {
		path, key, value string
		status           int
		body             string
	}{
		{"/v1/locks/job", "", "", 200, `"newest_event":"1"`},
		{"/v1/locks/job", "Lockstep-Cluster", own, 200, `"job"`},
		{"/v1/locks/job", "Lockstep-Cluster", other, 400, `"reason":"WRONG_CLUSTER"`},
		{"/v1/watch", "Lockstep-Cluster", other, 400, `"reason":"WRONG_CLUSTER"`},
		{"/v1/watch?after=0", "Last-Event-ID", other + ":1", 400, `"field":"cluster","newest":"1"`},
		{"/v1/watch?cluster=" + other + "&after=1", "", "", 400, `"field":"cluster","newest":"1"`},
		{"/v1/watch", "Last-Event-ID", own + ":99", 400, `"field":"after","newest":"1"`},
		{"/v1/watch", "Last-Event-ID", "99", 400, `"reason":"OUT_OF_RANGE"`},
		{"/v1/watch", "Last-Event-ID", own + ":0x1", 400, `"field":"Last-Event-ID"`},
		{"/v1/locks//", "", "", 400, `"reason":"INVALID_NAME"`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.base+call.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if call.key != "" {
			req.Header.Set(call.key, call.value)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		mine := call.body != `"field":"Last-Event-ID"` // refused before the node is asked
		if err != nil || resp.StatusCode != call.status || !strings.Contains(string(body), call.body) || mine && resp.Header.Get("Lockstep-Cluster") != own {
			t.Errorf("%s with %s %q: %d %s of cluster %q, %v; want %d with %s of %s", call.path, call.key, call.value,
				resp.StatusCode, body, resp.Header.Get("Lockstep-Cluster"), err, call.status, call.body, own)
		}
	}
}

func TestAWatchIsToldWhyItEnds(t *testing.T) {
	t.Parallel()
	s := alone(t)
	r := start(t, s.Run)
	serving(t, s)
	w := newCurl(t, s).watch("")
	w.next()
	stopped := make(chan struct{})
	go func() { defer close(stopped); r.stop() }()
	if _, kind, data := w.next(); kind != "error" || !strings.Contains(data, `"reason":"UNAVAILABLE"`) {
		t.Errorf("the watch of a node that stops ends with %q: %s", kind, data)
	}
	w.body.Close()
	<-stopped
}

// A described service is known only through reflection, as for grpcurl.
type described struct {
	t    *testing.T
	conn *grpc.ClientConn
	file protoreflect.FileDescriptor
}

func describe(t *testing.T, address string) *described {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{
		FileContainingSymbol: "lockstep.v1.LockService",
	}}); err != nil {
		t.Fatal(err)
	}
	answer, err := r.Recv()
	if err != nil {
		t.Fatal(err)
	}
	files := answer.GetFileDescriptorResponse().GetFileDescriptorProto()
	if len(files) != 1 {
		t.Fatalf("reflection gives %d files: %v", len(files), answer)
	}
	var text descriptorpb.FileDescriptorProto
	if err := proto.Unmarshal(files[0], &text); err != nil {
		t.Fatal(err)
	}
	file, err := protodesc.NewFile(&text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &described{t: t, conn: conn, file: file}
}

// call makes a unary call with a JSON request, and returns the JSON answer.
func (d *described) call(service, method, request string) (map[string]any, error) {
	d.t.Helper()
	m := d.file.Services().ByName(protoreflect.Name(service)).Methods().ByName(protoreflect.Name(method))
	in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if err := protojson.Unmarshal([]byte(request), in); err != nil {
		d.t.Fatalf("%s: %v", request, err)
	}
	if err := d.conn.Invoke(d.t.Context(), "/lockstep.v1."+service+"/"+method, in, out); err != nil {
		return nil, err
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(out)
	if err != nil {
		d.t.Fatal(err)
	}
	answer := map[string]any{}
	if err := json.Unmarshal(text, &answer); err != nil {
		d.t.Fatal(err)
	}
	return answer, nil
}

func TestTheAPIDescribesItselfOverGRPC(t *testing.T) {
	t.Parallel()
	d := describe(t, startAlone(t).Addresses().Client)
	must := func(answer map[string]any, err error) map[string]any {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	open := must(d.call("LockService", "OpenSession", `{"ttl_ms":60000}`))
	proof := `{"session":"` + open["session"].(string) + `","secret":"` + open["secret"].(string) + `"`
	seq, token := claimOf(t, must(d.call("LockService", "Acquire", proof+`,"spec":{"names":["job"],"wait_ms":5000}}`)))
	lock := must(d.call("LockService", "GetLock", `{"name":"job"}`))["lock"].(map[string]any)
	if h := lock["holders"].([]any); len(h) != 1 || h[0].(map[string]any)["token"] != token {
		t.Errorf("the lock is %v", lock)
	}
	for _, bad := range []struct {
		method, request string
		code            codes.Code
		reason          string
	}{
		{"GetLock", `{"name":""}`, codes.InvalidArgument, "INVALID_NAME"},
		{"GetLock", `{"name":"a\u0000"}`, codes.InvalidArgument, "INVALID_NAME"},
		{"GetLock", `{"name":"a//b"}`, codes.InvalidArgument, "INVALID_NAME"},
		{"GetLock", `{"name":"_sys/a"}`, codes.PermissionDenied, "RESERVED_NAME"},
		{"OpenSession", `{"ttl_ms":1}`, codes.OutOfRange, "OUT_OF_RANGE"},
		{"OpenSession", `{"ttl_ms":"18446744073709551615"}`, codes.OutOfRange, "OUT_OF_RANGE"},
		{"Acquire", proof + `,"spec":{"names":["job"],"wait_ms":0}}`, codes.Aborted, "BUSY"},
		{"KeepAlive", `{"session":"1"}`, codes.NotFound, "SESSION_UNKNOWN"},
		{"Release", proof + `,"seq":"` + seq + `","token":"1"}`, codes.FailedPrecondition, "NOT_HELD"},
		{"ListSessions", `{"page_token":"x"}`, codes.InvalidArgument, "INVALID_ARGUMENT"},
	} {
		_, err := d.call("LockService", bad.method, bad.request)
		if e := protocol.FromErr(err); status.Code(err) != bad.code || protocol.ReasonText(e.GetReason()) != bad.reason || e.GetMessage() == "" {
			t.Errorf("%s %s: %v; want %v, %s", bad.method, bad.request, err, bad.code, bad.reason)
		}
	}
	must(d.call("LockService", "Release", proof+`,"seq":"`+seq+`","token":"`+token+`"}`))
	must(d.call("LockService", "CloseSession", proof+`}`))
}
