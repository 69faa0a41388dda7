package gateway

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheTableOfErrorsHasTheStatusOfHTTP(t *testing.T) {
	doc := page(t, "api.md")
	for number := range pb.Reason_name {
		r := pb.Reason(number)
		if r == pb.Reason_REASON_UNSPECIFIED {
			continue
		}
		code := protocol.CodeOf(r)
		row := fmt.Sprintf("\n| %s | %s | %d | ", protocol.ReasonText(r), names[code], runtime.HTTPStatusFromCode(code))
		if !strings.Contains(doc, row) {
			t.Errorf("docs/api.md lacks the row %q", strings.TrimSpace(row))
		}
	}
}

func TestEveryCallHasAnExampleWithCurl(t *testing.T) {
	var described struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
		}
	}
	if err := json.Unmarshal([]byte(page(t, "openapi.json")), &described); err != nil {
		t.Fatal(err)
	}
	if len(described.Paths) < 10 {
		t.Fatalf("only %d paths are described", len(described.Paths))
	}
	doc := page(t, "api.md")
	for path, methods := range described.Paths {
		example := strings.NewReplacer("/v1", "$N", "{session}", "$S", "{name}", "billing/nightly").Replace(path)
		for method, call := range methods {
			_, name, _ := strings.Cut(call.OperationID, "_")
			found := false
			for line := range strings.Lines(doc) {
				posts := strings.Contains(line, " -d ")
				found = found || strings.HasPrefix(line, "| "+name) && strings.Contains(line, example) && posts == (method == "post")
			}
			if !found {
				t.Errorf("docs/api.md has no example of %s: %s %s", name, method, example)
			}
		}
	}
}
