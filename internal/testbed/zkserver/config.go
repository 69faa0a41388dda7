package zkserver

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// Jar is where the Debian package "libzookeeper-java" installs ZooKeeper. Its manifest names the
// other jars that it needs.
const Jar = "/usr/share/java/zookeeper.jar"

// logJar prints the log of the servers. They also run without it.
const logJar = "/usr/share/java/slf4j-simple.jar"

// Config configures the servers.
type Config struct {
	// Dir holds the data, the configuration and the log of each server. It must exist.
	Dir string
	// Servers is 1 or 3. Default: 3.
	Servers int
	// TickTime is ZooKeeper's unit of time, 100 ms to 2 s: sessions time out after 2 to 20 ticks,
	// and are checked once per tick. Default: 500 ms.
	TickTime time.Duration
	// Options are further lines for zoo.cfg, such as "maxSessionTimeout=3000". With "forceSync=no"
	// the servers do not wait for the disk: confirmed writes then survive a kill but not a power
	// cut.
	Options []string
}

func (c Config) withDefaults() Config {
	c.Servers = cmp.Or(c.Servers, 3)
	c.TickTime = cmp.Or(c.TickTime, 500*time.Millisecond)
	return c
}

func (c Config) validate() error {
	switch {
	case c.Dir == "":
		return &lockstep.InvalidError{Field: "dir", Rule: "must not be empty"}
	case c.Servers != 1 && c.Servers != 3:
		return &lockstep.InvalidError{Field: "servers", Value: fmt.Sprint(c.Servers), Rule: "must be 1 or 3"}
	case c.TickTime < 100*time.Millisecond || c.TickTime > 2*time.Second:
		return &lockstep.InvalidError{Field: "tick time", Value: c.TickTime.String(), Rule: "must be 100ms to 2s"}
	}
	return nil
}

// Installed returns what is missing to run ZooKeeper here, or nil.
func Installed() error {
	if _, err := exec.LookPath("java"); err != nil {
		return fmt.Errorf("java is not installed (Debian: apt-get install zookeeper): %w", err)
	}
	if _, err := os.Stat(Jar); err != nil {
		return fmt.Errorf("ZooKeeper is not installed (Debian: apt-get install zookeeper): %w", err)
	}
	return nil
}

// ports are the addresses of one server.
type ports struct{ client, peer, election string }

// zooCfg is the configuration of server i, counting from 0.
func (c Config) zooCfg(dir string, all []ports, i int) string {
	_, clientPort, _ := strings.Cut(all[i].client, ":")
	lines := []string{
		fmt.Sprintf("tickTime=%d", c.TickTime.Milliseconds()),
		"initLimit=60", // ticks that a server may take to load what it missed
		"syncLimit=10", // ticks of silence after which a server and its leader give up on each other
		"dataDir=" + dir,
		"clientPort=" + clientPort,
		"clientPortAddress=127.0.0.1",
		"maxClientCnxns=0", // no limit: all clients come from one address
		"admin.enableServer=false",
		"4lw.commands.whitelist=srvr,conf",
	}
	if len(all) > 1 {
		for n, p := range all {
			_, electionPort, _ := strings.Cut(p.election, ":")
			lines = append(lines, fmt.Sprintf("server.%d=%s:%s", n+1, p.peer, electionPort))
		}
	}
	return strings.Join(append(lines, c.Options...), "\n") + "\n"
}

// javaArgs start one server with little memory, tuned for a quick start rather than long-term
// speed.
func javaArgs(config string) []string {
	return []string{
		"-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true", "-Djava.net.preferIPv4Stack=true",
		"-cp", Jar + string(os.PathListSeparator) + logJar,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", config,
	}
}

// errNoLeader is returned by Leader during an election.
var errNoLeader = errors.New("zkserver: no server leads at the moment")
