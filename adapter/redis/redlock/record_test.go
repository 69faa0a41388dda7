package redlock

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep"
)

func TestRecordsOfOthersAreNoHolders(t *testing.T) {
	for _, text := range []string{"", "7", "1 2 3 owner", "1 x 3 owner {}", "1 2 x owner {}", "1 2 3 owner {", "1 99999999999999999999 3 owner {}"} {
		if s, err := parseSight(text); err == nil {
			t.Errorf("%q is read as %+v", text, s)
		}
	}
	tail, err := recordTail("secret", map[string]string{"purpose": "two words"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseSight("1 2 3000 " + tail)
	if err != nil || s.token != 2 || s.since.Unix() != 3 || s.owner != ownerOf("secret") || s.metadata["purpose"] != "two words" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestHolderIsWhoAMajorityShows(t *testing.T) {
	a, b, between := sight{owner: "a", token: 5}, sight{owner: "b", token: 6}, sight{owner: "a"}
	for name, c := range map[string]struct {
		sights []sight
		owner  string
	}{
		"nobody":                     {nil, ""},
		"two of five":                {[]sight{a, a, b}, ""},
		"three of five":              {[]sight{b, a, a, b, a}, "a"},
		"one between the steps":      {[]sight{between, between, between}, ""},
		"step 2 has not reached all": {[]sight{between, between, a}, "a"},
		"records that are not ours":  {[]sight{{}, {}, {}, {}}, ""},
	} {
		holder, found := holderOf(5, c.sights)
		if found != (c.owner != "") || holder.Owner != c.owner {
			t.Errorf("%s: %+v, want %q", name, holder, c.owner)
		}
	}
}

func TestJudgeNamesTheNodeAndTheRule(t *testing.T) {
	fit := "redis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:abc\r\n# Replication\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n"
	n := &node{field: nodeField(1, "h:1")}
	if err := n.judge(parseInfo(fit)); err != nil {
		t.Fatal(err)
	}
	for old, c := range map[string]struct{ now, want string }{
		"7.0.15":     {"6.2.1", "must be version 7 or later"},
		"standalone": {"sentinel", "is a sentinel"},
		"run_id:abc": {"run_id:", "run_id"},
		"master":     {"slave", "is a replica"},
		"noeviction": {"allkeys-lfu", "must be noeviction"},
	} {
		err := n.judge(parseInfo(strings.Replace(fit, old, c.now, 1)))
		if !errors.Is(err, lockstep.ErrInvalid) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "node 2 (h:1)") {
			t.Errorf("%s instead of %s: %v", c.now, old, err)
		}
	}
	if err := n.judge(parseInfo(strings.Replace(fit, "standalone", "cluster", 1))); !errors.Is(err, lockstep.ErrInvalid) {
		t.Errorf("a cluster: %v", err)
	}
}
