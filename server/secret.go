package server

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// MinSecretBytes is the minimum size of a cluster secret.
	MinSecretBytes = 32
	// maxSecrets bounds the number of secrets accepted at once, and maxSecretFile the size of their
	// file.
	maxSecrets    = 8
	maxSecretFile = 4096
)

// A secretError says what is wrong with a file of secrets and what to do.
type secretError struct{ problem string }

func (e secretError) Error() string {
	return e.problem + `: generate one with "lockstep keygen secret FILE", and copy it to every node`
}

// parseSecrets takes one secret from each line that is not empty.
func parseSecrets(text []byte) (all [][]byte, err error) {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if len(line) < MinSecretBytes {
			return nil, secretError{fmt.Sprintf("secret %d has %d bytes, must have at least %d", len(all)+1, len(line), MinSecretBytes)}
		}
		all = append(all, bytes.Clone(line))
	}
	switch {
	case len(all) == 0:
		return nil, secretError{"the file contains no secret"}
	case len(all) > maxSecrets:
		return nil, secretError{fmt.Sprintf("the file contains %d secrets, the limit is %d", len(all), maxSecrets)}
	}
	return all, nil
}

// readSecrets refuses a file that others may read or modify.
func readSecrets(path string) ([][]byte, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	wrong := func(err error) error { return &fs.PathError{Op: "read", Path: path, Err: err} }
	if !info.Mode().IsRegular() {
		return nil, nil, wrong(errors.New("is not a regular file"))
	}
	if err := checkSecretMode(info); err != nil {
		return nil, nil, wrong(err)
	}
	if info.Size() > maxSecretFile {
		return nil, nil, wrong(fmt.Errorf("is larger than %d bytes", maxSecretFile))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	all, err := parseSecrets(text)
	if err != nil {
		return nil, nil, wrong(err)
	}
	return all, info, nil
}

// A secretFile returns the current content of a file.
type secretFile struct {
	path string
	log  *slog.Logger

	mu struct {
		sync.Mutex
		looked  time.Time
		read    fs.FileInfo // of the file that was read
		secrets [][]byte
		problem string // why the current content cannot be used
	}
}

// secretEvery bounds how often the file is looked at: each handshake and many calls ask for the
// secrets.
const secretEvery = time.Second

// current reads the file again when it has changed, at most once every secretEvery. What cannot be
// used does not take the place of what was read before.
func (f *secretFile) current() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.mu.looked) >= secretEvery {
		f.mu.looked = now
		f.lookLocked()
	}
	return f.mu.secrets
}

// lookLocked reads the file again when it has changed. f.mu must be held.
func (f *secretFile) lookLocked() {
	info, err := os.Stat(f.path)
	if err == nil && f.mu.read != nil && os.SameFile(info, f.mu.read) && info.Size() == f.mu.read.Size() &&
		info.ModTime().Equal(f.mu.read.ModTime()) && info.Mode() == f.mu.read.Mode() {
		return
	}
	secrets, info, err := readSecrets(f.path)
	if err != nil {
		if problem := err.Error(); problem != f.mu.problem { // told once
			f.mu.problem = problem
			f.log.Error("cannot reload the cluster secret: keeping the current one", "err", err)
		}
		return
	}
	if f.mu.secrets != nil {
		f.log.Info("cluster secrets reloaded", "file", f.path, "secrets", len(secrets))
	}
	f.mu.read, f.mu.secrets, f.mu.problem = info, secrets, ""
}

// secrets returns the secrets for handshakes. The configuration has been checked.
func (c *Config) secrets() func() [][]byte {
	if c.ClusterSecretFile != "" {
		return (&secretFile{path: c.ClusterSecretFile, log: c.Logger}).current
	}
	all, err := parseSecrets([]byte(c.ClusterSecret))
	if err != nil {
		all = nil // a single node on loopback has none, and no peers
	}
	return func() [][]byte { return all }
}

// checkSecret requires a secret on every node whose peer port others may reach. Without one, anyone
// who can reach the port could destroy the cluster, and read and change everything it knows.
func (c Config) checkSecret() error {
	const field = "ClusterSecretFile"
	switch {
	case c.ClusterSecret != "" && c.ClusterSecretFile != "":
		return wrong(field, "ClusterSecret is also set: set only one of them")
	case c.ClusterSecretFile != "":
		if _, _, err := readSecrets(c.ClusterSecretFile); err != nil {
			return wrong(field, "%v", err)
		}
		return nil
	case c.ClusterSecret != "":
		if _, err := parseSecrets([]byte(c.ClusterSecret)); err != nil {
			return wrong("ClusterSecret", "%v", err)
		}
		return nil
	case c.Join != "":
		return wrong(field, `is required: the nodes of a cluster share a secret; give the same file as on the other nodes`)
	case len(c.InitialCluster) > 1:
		return wrong(field, `is required for a cluster of %d nodes: generate a secret with "lockstep keygen secret FILE", and copy it to every node`, len(c.InitialCluster))
	}
	peer := c.ports()[1]
	if peer.listener != nil {
		peer.address = peer.listener.Addr().String()
	}
	if host, _, err := net.SplitHostPort(peer.address); err == nil && !isLoopback(host) {
		return wrong(field, `is required, because other machines can reach PeerListen %q, and anyone who does could stop the node for good: generate a secret with "lockstep keygen secret FILE"`, peer.address)
	}
	return nil
}
