package protocol

import (
	"fmt"
	"os"
	"strings"
	"testing"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// codeNames are the codes as spelled in the gRPC documentation.
var codeNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
	"UNAUTHENTICATED",
}

func TestTheDocumentedTableHasEveryReasonWithItsCode(t *testing.T) {
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for number := range pb.Reason_name {
		reason := pb.Reason(number)
		if reason == pb.Reason_REASON_UNSPECIFIED {
			continue
		}
		row := fmt.Sprintf("\n| %s | %s | ", ReasonText(reason), codeNames[CodeOf(reason)])
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/api.md lacks the row %q", strings.TrimSpace(row))
		}
	}
}
