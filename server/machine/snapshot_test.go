package machine

import (
	"bytes"
	"testing"
)

// snapshot is the whole of a capture that nothing disturbs.
func snapshot(m *Machine) []byte {
	return drain(m.StartCapture())
}

func drain(c *Capture) []byte {
	var b bytes.Buffer
	for {
		chunk, last := c.Next()
		b.Write(chunk)
		if last {
			return b.Bytes()
		}
	}
}

func TestARestoredMachineHasTheSameSnapshot(t *testing.T) {
	m := New()
	out := m.Apply(1, 1, &Entry{Commands: []Command{
		SetTokenFloor{10},
		OpenSession{TTL: 10_000, ClientNumbered: true, Metadata: []Label{{"host", "a"}}},
	}})
	a := out.Results[1].Session
	m.Apply(2, 1, &Entry{Commands: []Command{
		Acquire{Session: a, Seq: 1, Spec: Spec{Names: []string{"x", "y"}, Metadata: []Label{{"pid", "1"}}}},
		Acquire{Session: a, Seq: 2, Spec: Spec{Names: []string{"y"}}},
	}})
	want := snapshot(m)
	n, err := Restore(bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	if got := snapshot(n); !bytes.Equal(got, want) {
		t.Fatal("the snapshots differ")
	}
}
