package server_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/server"
)

const testSecret = "a secret of the tests, longer than 32 bytes"

// good returns a configuration that New accepts.
func good() server.Config {
	return server.Config{
		Name: "n1", DataDir: "d",
		Listen: "127.0.0.1:7400", PeerListen: "127.0.0.1:7401", HTTPListen: "127.0.0.1:7402",
		InitialCluster: map[string]string{"n1": "127.0.0.1:7401", "n2": "127.0.0.1:7411", "n3": "127.0.0.1:7421"},
		ClusterSecret:  testSecret,
	}
}

func TestAWrongConfigurationIsRefusedWithItsFieldAndRule(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*server.Config)
		field  string
		says   string
	}{
		{"no name", func(c *server.Config) { c.Name = "" }, "Name", "1 to 63"},
		{"a name with a comma", func(c *server.Config) { c.Name = "a,b" }, "Name", `"a,b"`},
		{"no data directory", func(c *server.Config) { c.DataDir = "" }, "DataDir", "empty"},
		{"an address without a port", func(c *server.Config) { c.Listen = "127.0.0.1" }, "Listen", "host:port"},
		{"a port that is no number", func(c *server.Config) { c.PeerListen = "127.0.0.1:x" }, "PeerListen", "65535"},
		{"a port above 65535", func(c *server.Config) { c.HTTPListen = "127.0.0.1:65536" }, "HTTPListen", "65535"},
		{"all addresses", func(c *server.Config) { c.Listen = ":7400" }, "Listen", "loopback"},
		{"an address that is not loopback", func(c *server.Config) { c.HTTPListen = "192.0.2.1:7402" }, "HTTPListen", "Insecure"},
		{"one address twice", func(c *server.Config) { c.HTTPListen = c.Listen }, "HTTPListen", "Listen"},
		{"a wildcard that is not advertised", func(c *server.Config) { c.Insecure, c.Listen = true, "0.0.0.0:7400" }, "AdvertiseClient", "wildcard"},
		{"a wildcard that is advertised", func(c *server.Config) { c.AdvertiseClient = "[::]:7400" }, "AdvertiseClient", "dial"},
		{"an advertised port 0", func(c *server.Config) { c.AdvertiseClient = "localhost:0" }, "AdvertiseClient", "port 0"},
		{"a cluster without the node", func(c *server.Config) { c.Name = "n4" }, "InitialCluster", `"n4"`},
		{"another peer address than the cluster says", func(c *server.Config) { c.AdvertisePeer = "127.0.0.1:9" }, "AdvertisePeer", "127.0.0.1:7401"},
		{"two nodes at one address", func(c *server.Config) { c.InitialCluster["n2"] = c.InitialCluster["n3"] }, "InitialCluster", "n2 and n3"},
		{"a node without a host", func(c *server.Config) { c.InitialCluster["n2"] = ":7411" }, "InitialCluster", "dial"},
		{"a node with a bad name", func(c *server.Config) { c.InitialCluster["n 2"] = "127.0.0.1:1" }, "InitialCluster", `"n 2"`},
		{"ten nodes", func(c *server.Config) {
			for _, n := range strings.Split("abcdefg", "") {
				c.InitialCluster[n] = "h" + n + ":1"
			}
		}, "InitialCluster", "10 nodes, the limit is 9"},
		{"a missing node that is none", func(c *server.Config) { c.InitialMissing = []string{"n9"} }, "InitialMissing", `"n9" is not in InitialCluster`},
		{"a node that is missing itself", func(c *server.Config) { c.InitialMissing = []string{c.Name} }, "InitialMissing", "does exist"},
		{"a missing node of no cluster", func(c *server.Config) { c.InitialCluster, c.InitialMissing = nil, []string{"n2"} }, "InitialMissing", "needs InitialCluster"},
		{"several nodes and no secret", func(c *server.Config) { c.ClusterSecret = "" }, "ClusterSecretFile", "keygen secret"},
		{"several nodes and no secret, insecure", func(c *server.Config) { c.ClusterSecret, c.Insecure = "", true }, "ClusterSecretFile", "keygen secret"},
		{"a node that joins, and no secret", func(c *server.Config) {
			c.ClusterSecret, c.Join = "", strings.Repeat("0", 32)
		}, "ClusterSecretFile", "as on the other nodes"},
		{"one node beyond loopback and no secret", func(c *server.Config) {
			*c = server.Config{Name: "n1", DataDir: "d", PeerListen: "0.0.0.0:7401", Insecure: true}
		}, "ClusterSecretFile", "keygen secret"},
		{"a short secret", func(c *server.Config) { c.ClusterSecret = strings.Repeat("x", 31) }, "ClusterSecret", "31 bytes, must have at least 32"},
		{"a second secret that is short", func(c *server.Config) { c.ClusterSecret += "\nx" }, "ClusterSecret", "secret 2 has 1 bytes"},
		{"nine secrets", func(c *server.Config) { c.ClusterSecret = strings.Repeat(testSecret+"\n", 9) }, "ClusterSecret", "the limit is 8"},
		{"two places of the secret", func(c *server.Config) { c.ClusterSecretFile = "f" }, "ClusterSecretFile", "one of them"},
		{"a file of a secret that is not there", func(c *server.Config) { c.ClusterSecret, c.ClusterSecretFile = "", "/no/such/file" }, "ClusterSecretFile", "/no/such/file"},
		{"a negative timeout", func(c *server.Config) { c.StopTimeout = -1 }, "StopTimeout", "negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := good()
			c.change(&cfg)
			_, err := server.New(cfg)
			e, ok := errors.AsType[*server.ConfigError](err)
			if !ok || e.Field != c.field || !strings.Contains(e.Rule, c.says) {
				t.Errorf("got %v, want a ConfigError of %s that says %q", err, c.field, c.says)
			}
		})
	}
}

func TestAGoodConfigurationIsAccepted(t *testing.T) {
	for name, change := range map[string]func(*server.Config){
		"as it is":      func(*server.Config) {},
		"only the name": func(c *server.Config) { *c = server.Config{Name: "n1", DataDir: "d"} },
		"one node beyond loopback, with a secret": func(c *server.Config) {
			c.InitialCluster, c.PeerListen, c.Insecure = nil, "0.0.0.0:7401", true
		},
		"several secrets":   func(c *server.Config) { c.ClusterSecret = "\n" + testSecret + "\r\n\n" + testSecret + "2\n" },
		"IPv6":              func(c *server.Config) { c.Listen = "[::1]:7400" },
		"localhost, port 0": func(c *server.Config) { c.Listen, c.HTTPListen = "localhost:0", "localhost:0" },
		"insecure":          func(c *server.Config) { c.Insecure, c.Listen, c.AdvertiseClient = true, ":7400", "db1.example:7400" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good()
			change(&cfg)
			if _, err := server.New(cfg); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAWrongClusterConfigurationIsRefused(t *testing.T) {
	for field, cfg := range map[string]server.ClusterConfig{
		"DataDir": {},
		"Nodes":   {DataDir: "d", Nodes: 10},
		"Port":    {DataDir: "d", Port: 65530},
	} {
		_, err := server.NewCluster(cfg)
		if e, ok := errors.AsType[*server.ConfigError](err); !ok || e.Field != field {
			t.Errorf("got %v, want a ConfigError of %s", err, field)
		}
	}
}
