package redlock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/lockstep-dev/lockstep"
)

// minVersion is the first major version of Redis that is supported: scripts that read the clock are
// replicated as the writes they make.
const minVersion = 7

// identities holds the run ids of the examined nodes: two nodes with the same id are one server. A
// node has none before it is examined, and after a network failure.
type identities struct {
	mu   sync.Mutex
	ids  [maxNodes]string
	last [maxNodes]string // the ids that were warned about
}

func (s *identities) known(node int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[node] != ""
}

func (s *identities) forget(node int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[node] = ""
}

// claim records the id of a node. It returns the other node that has it, or -1; isNew is set if
// this node had a different one last time.
func (s *identities) claim(node int, id string) (other int, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, taken := range s.ids {
		if taken == id && i != node {
			return i, false
		}
	}
	isNew = s.last[node] != id
	s.ids[node], s.last[node] = id, id
	return -1, isNew
}

// misfit returns the error for a server that is unfit to be a node.
func misfit(field, rule string) error { return &lockstep.InvalidError{Field: field, Rule: rule} }

// examine checks, once per connection, that the node is fit to vote. An error that is
// [lockstep.ErrInvalid] means that it is not, and will not be as it stands; any other error means
// that it could not be asked. examine only reads from the node.
func (n *node) examine(ctx context.Context) error {
	select {
	case n.examining <- struct{}{}:
		defer func() { <-n.examining }()
	case <-ctx.Done():
		return &notSentError{fmt.Errorf("%s: %w", n.field, ctx.Err())}
	}
	if n.identity.known(n.index) {
		return nil
	}
	// The caller may not wait long enough for a slow node. If its context ended this, such a node
	// would never be admitted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.timeout)
	defer cancel()
	answer, err := n.send(ctx, []any{"info"})
	if err != nil {
		return &notSentError{err}
	}
	text, ok := answer.(string)
	if !ok {
		return &notSentError{fmt.Errorf("%s: INFO answered %T, want a string", n.field, answer)}
	}
	info := parseInfo(text)
	if err := n.judge(info); err != nil {
		return err
	}
	other, isNew := n.identity.claim(n.index, info["run_id"])
	if other >= 0 {
		return misfit(n.field, fmt.Sprintf("is the same server as node %d: its vote would count twice", other+1))
	}
	if isNew {
		n.noteSync(ctx, info)
	}
	return nil
}

// judge refuses servers whose votes would be worthless.
func (n *node) judge(info map[string]string) error {
	version := info["redis_version"]
	first, _, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(first)
	switch policy := info["maxmemory_policy"]; {
	case info["redis_mode"] == "sentinel":
		return misfit(n.field, "is a sentinel, must be a master")
	case info["redis_mode"] == "cluster":
		return misfit(n.field, "is a node of a Redis Cluster, must be an independent master: a failover would lose its votes")
	case info["role"] != "master":
		return misfit(n.field, fmt.Sprintf("is a replica (role %s), must be an independent master", lockstep.Excerpt(info["role"])))
	case err != nil || major < minVersion:
		return misfit(n.field, fmt.Sprintf("runs Redis %s, must be version %d or later", lockstep.Excerpt(version), minVersion))
	case policy != "noeviction":
		return misfit(n.field, fmt.Sprintf("has maxmemory-policy %s, must be noeviction: an evicted lock is free for others", lockstep.Excerpt(policy)))
	case info["run_id"] == "":
		return misfit(n.field, "tells no run_id, so nobody can say whether it is another server than the other nodes")
	}
	return nil
}

// noteSync warns about a node that may lose confirmed writes in a crash.
func (n *node) noteSync(ctx context.Context, info map[string]string) {
	const advice = "after a crash this node may grant what it has granted already: set appendonly yes and appendfsync always"
	settings, err := n.client.ConfigGet(ctx, "appendfsync").Result()
	switch {
	case info["aof_enabled"] != "1":
		n.log.Warn(advice, "node", n.index+1, "address", n.address, "appendonly", "no")
	case err != nil:
		n.log.Warn("this node does not tell its appendfsync, which should be always", "node", n.index+1, "address", n.address, "err", err)
	case settings["appendfsync"] != "always":
		n.log.Warn(advice, "node", n.index+1, "address", n.address, "appendfsync", settings["appendfsync"])
	}
}

// parseInfo parses the reply of INFO: lines of key:value, and headings.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	return info
}
