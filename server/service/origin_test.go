package service

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/lockstep-dev/lockstep/server/lead"
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
		"far too long":                        {node(old), node(old).seal(strings.Repeat("1", maxSealed)), ""},
	} {
		if got, ok := c.at.unseal(c.sealed); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s: taken for one of %q, %v", name, got, ok)
		}
	}
	if got := node().seal("10.0.0.7:4711"); got != "" {
		t.Errorf("without a secret %q was sent", got)
	}
	if got := originOf(""); got != (lead.Origin{}) {
		t.Errorf("nobody is %+v", got)
	}
}

// A client may send what a node sends, and many times over: only one proof of a call that was
// passed on is checked, and once.
func TestOneProofOfACallIsCheckedOnce(t *testing.T) {
	asked := 0
	s := &Service{cfg: Config{ClusterSecrets: func() [][]byte {
		asked++
		return [][]byte{[]byte("a secret of the cluster, 32 bytes")}
	}}}
	sealed := s.seal("10.0.0.7:4711")
	forged := slices.Repeat([]string{clientKey, "10.0.0.8:4711" + sealed[len("10.0.0.7:4711"):]}, 300)
	for name, c := range map[string]struct {
		metadata []string
		want     string
		asked    int
	}{
		"passed on by a node":         {[]string{hopKey, "n2", clientKey, sealed}, "10.0.0.7", 1},
		"passed on by nobody":         {[]string{clientKey, sealed}, "", 0},
		"with a forged proof":         {append([]string{hopKey, "n2"}, forged[:2]...), "", 1},
		"with many proofs":            {append([]string{hopKey, "n2"}, forged...), "", 0},
		"with a good proof among two": {[]string{hopKey, "n2", clientKey, sealed, clientKey, sealed}, "", 0},
		"without a proof":             {[]string{hopKey, "n2"}, "", 0},
	} {
		asked = 0
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(c.metadata...))
		_, _ = s.noteClient(ctx, nil, nil, func(ctx context.Context, _ any) (any, error) {
			for range 3 {
				if got, by := s.origin(ctx).Address, s.passedOnByNode(ctx); got != c.want || by != (c.want != "") {
					t.Errorf("%s: the origin is %q, passed on %v", name, got, by)
				}
			}
			return nil, nil // the handler's answer does not matter
		})
		if asked != c.asked {
			t.Errorf("%s: the secrets were asked for %d times, want %d", name, asked, c.asked)
		}
	}
}
