package cli

import (
	"bytes"
	"os"
	"testing"
)

// Pebble links a reporter of errors, sentry-go, which sends to the network once a client of it
// exists. The linker drops functions that nothing calls, so the test's own program tells whether
// anything could make one.
func TestNothingCanSendReportsOfErrors(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	linked := func(function string) bool { // its name is in the table of functions, with a zero byte at its end
		return bytes.Contains(program, append([]byte("github.com/getsentry/sentry-go."), function+"\x00"...))
	}
	if !linked("NewHub") {
		t.Error("sentry-go is not linked, or its functions are not found: this test shows nothing")
	}
	for _, function := range []string{"Init", "NewClient"} {
		if linked(function) {
			t.Errorf("something calls sentry.%s", function)
		}
	}
}
