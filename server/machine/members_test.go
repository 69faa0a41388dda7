package machine

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-dev/lockstep/server/command"
)

func member(id uint64, name string, instance byte) command.Member {
	return command.Member{ID: id, Name: name, Address: name + ":7401", Instance: [16]byte{instance}}
}

func TestTheMemberTable(t *testing.T) {
	m := New()
	index := uint64(0)
	apply := func(c command.Command) command.Result {
		t.Helper()
		index++
		e := command.Entry{Commands: []command.Command{c}}
		decoded, err := command.DecodeEntry(command.AppendEntry(nil, &e))
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
		command command.Command
		want    command.Code
	}{
		{"a founder whose directory is not known yet", command.SetMember{Member: command.Member{ID: 1, Name: "n1", Address: "n1:7401", Founder: true}}, command.OK},
		{"its directory becomes known", command.SetMember{Member: member(1, "n1", 7)}, command.OK},
		{"the same again", command.SetMember{Member: member(1, "n1", 7)}, command.OK},
		{"another directory is refused", command.SetMember{Member: member(1, "n1", 8)}, command.Malformed},
		{"a name that is taken is refused", command.SetMember{Member: member(2, "n1", 9)}, command.Malformed},
		{"another name of the same id is refused", command.SetMember{Member: member(1, "n2", 7)}, command.Malformed},
		{"a second member", command.SetMember{Member: member(2, "n2", 9)}, command.OK},
		{"no such member to remove", command.RemoveMember{ID: 3}, command.Malformed},
		{"a removal", command.RemoveMember{ID: 1}, command.OK},
		{"a removed id does not come back", command.SetMember{Member: member(1, "n1", 7)}, command.Malformed},
		{"its name does, with another id", command.SetMember{Member: member(3, "n1", 10)}, command.OK},
		{"no id", command.SetMember{Member: member(0, "n4", 1)}, command.Malformed},
	}
	for _, s := range steps {
		if got := apply(s.command); got.Code != s.want {
			t.Errorf("%s: %v %q, want %v", s.name, got.Code, got.Limit, s.want)
		}
	}
	first := member(1, "n1", 7)
	first.Founder, first.Removed = true, true
	want := []command.Member{first, member(2, "n2", 9), member(3, "n1", 10)}
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
