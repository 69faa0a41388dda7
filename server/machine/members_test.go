package machine

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func member(id uint64, name string, instance byte) Member {
	return Member{ID: id, Name: name, Address: name + ":7401", Instance: [16]byte{instance}}
}

func TestTheMemberTable(t *testing.T) {
	m := New()
	index := uint64(0)
	apply := func(c Command) Result {
		t.Helper()
		index++
		e := Entry{Commands: []Command{c}}
		decoded, err := DecodeEntry(AppendEntry(nil, &e))
		if err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(e, decoded) {
			t.Fatalf("decoded %v, want %v", decoded, e)
		}
		return m.Apply(index, 1, &decoded).Results[0]
	}
	steps := []struct {
		name    string
		command Command
		want    Code
	}{
		{"a founder whose directory is not known yet", SetMember{Member{ID: 1, Name: "n1", Address: "n1:7401", Founder: true}}, OK},
		{"its directory becomes known", SetMember{member(1, "n1", 7)}, OK},
		{"the same again", SetMember{member(1, "n1", 7)}, OK},
		{"another directory is refused", SetMember{member(1, "n1", 8)}, Malformed},
		{"a name that is taken is refused", SetMember{member(2, "n1", 9)}, Malformed},
		{"another name of the same id is refused", SetMember{member(1, "n2", 7)}, Malformed},
		{"a second member", SetMember{member(2, "n2", 9)}, OK},
		{"no such member to remove", RemoveMember{3}, Malformed},
		{"a removal", RemoveMember{1}, OK},
		{"a removed id does not come back", SetMember{member(1, "n1", 7)}, Malformed},
		{"its name does, with another id", SetMember{member(3, "n1", 10)}, OK},
		{"no id", SetMember{member(0, "n4", 1)}, Malformed},
	}
	for _, s := range steps {
		if got := apply(s.command); got.Code != s.want {
			t.Errorf("%s: %v %q, want %v", s.name, got.Code, got.Limit, s.want)
		}
	}
	first := member(1, "n1", 7)
	first.Founder, first.Removed = true, true
	want := []Member{first, member(2, "n2", 9), member(3, "n1", 10)}
	if diff := cmp.Diff(want, m.Members()); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}

	var file bytes.Buffer
	c := m.StartCapture()
	for last := false; !last; {
		var chunk []byte
		chunk, last = c.Next()
		file.Write(chunk)
	}
	restored, err := Restore(&file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, restored.Members()); diff != "" {
		t.Errorf("members after a snapshot (-want +got):\n%s", diff)
	}
}
