package service

import (
	"encoding/hex"
	"testing"

	"github.com/lockstep-dev/lockstep/server/replica"
)

func TestAnAddressIsAHostAndWithIPv6ItsNetwork(t *testing.T) {
	for from, want := range map[string]string{
		"10.0.0.7:4711":               "10.0.0.7",
		"10.0.0.7":                    "10.0.0.7",
		"[2001:db8:1:2:3:4:5:6]:4711": "2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::1":        "2001:db8:1:2::/64",
		"[fe80::1%eth0]:4711":         "fe80::/64",
		"[::ffff:10.0.0.7]:4711":      "::ffff:10.0.0.7",
		"[::1]:4711":                  "::1",
		"@":                           "@",
		"this node":                   "",
		"":                            "",
	} {
		if got := originOf(from).Address; got != want {
			t.Errorf("%q counts as %q, want %q", from, got, want)
		}
	}
	if a, b := originOf("10.0.0.7:1"), originOf("10.0.0.7:2"); a.Connection == b.Connection {
		t.Error("two connections of one host are one")
	}
}

func TestOnlyTheClusterTellsForWhomACallIs(t *testing.T) {
	old, fresh := []byte("a secret of the cluster, 32 bytes"), []byte("the one after it, also 32 bytes long")
	node := func(secrets ...[]byte) *Service {
		return &Service{cfg: Config{ClusterSecrets: func() [][]byte { return secrets }}}
	}
	sealed := node(old).seal("10.0.0.7:4711")
	for name, c := range map[string]struct {
		at     *Service
		sealed string
		want   string
	}{
		"by a node":                           {node(old), sealed, "10.0.0.7:4711"},
		"by a node that has the older secret": {node(fresh, old), sealed, "10.0.0.7:4711"},
		"by a stranger":                       {node(fresh), sealed, ""},
		"where there is no secret":            {node(), sealed, ""},
		"with an empty secret":                {node(nil), "10.0.0.7:4711 " + hex.EncodeToString(proof(nil, "10.0.0.7:4711")), ""},
		"of another address":                  {node(old), "10.0.0.8:4711" + sealed[len("10.0.0.7:4711"):], ""},
		"without a proof":                     {node(old), "10.0.0.7:4711", ""},
		"empty":                               {node(old), "", ""},
	} {
		if got, ok := c.at.unseal(c.sealed); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s: taken for one of %q, %v", name, got, ok)
		}
	}
	if got := node().seal("10.0.0.7:4711"); got != "" {
		t.Errorf("without a secret %q was sent", got)
	}
	if got := originOf(""); got != (replica.Origin{}) {
		t.Errorf("nobody is %+v", got)
	}
}
