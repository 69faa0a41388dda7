package storage

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"
)

// formatVersion is the newest version of the directory's layout and records. An older program
// refuses a newer version. A directory is created in the first version. The only purpose of the
// second is to keep out programs that know no feature levels, once the log may hold entries that
// they cannot apply.
const (
	formatVersion = 2
	firstFormat   = 1
)

// An InstanceID is drawn once, when a directory is created. A node that comes back under its old id
// with another instance has lost what it promised.
type InstanceID [16]byte

func (id InstanceID) String() string { return hex.EncodeToString(id[:]) }

// An identity says whose directory it is.
type identity struct {
	cluster  string
	node     uint64
	instance InstanceID
	origin   string // of a directory made from a backup; else empty
	format   int    // of the file; the log has the identity in the first format
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// first returns the identity in the first format.
func (id identity) first() identity {
	id.format = firstFormat
	return id
}

func (id identity) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "lockstep data directory\nformat %d\ncluster %s\nnode %016x\ninstance %s\n",
		id.format, id.cluster, id.node, id.instance)
	if id.origin != "" {
		fmt.Fprintf(&b, "origin %s\n", id.origin)
	}
	fmt.Fprintf(&b, "checksum %08x\n", crc32.Checksum(b.Bytes(), castagnoli))
	return b.Bytes()
}

// identityLimit bounds the identity file in bytes.
const identityLimit = 4096

// errNewerFormat has the version found.
type errNewerFormat struct{ version int }

func (e errNewerFormat) Error() string {
	return fmt.Sprintf("format %d is newer than %d, the newest this program supports", e.version, formatVersion)
}

func decodeIdentity(text []byte) (identity, error) {
	var id identity
	var version int
	var instance string
	body, sum, ok := strings.Cut(string(text), "checksum ")
	if _, err := fmt.Sscanf(body, "lockstep data directory\nformat %d\n", &version); err != nil {
		return id, fmt.Errorf("cannot parse IDENTITY: %w", err)
	}
	if version > formatVersion { // checked first: the rest may have changed its form
		return id, errNewerFormat{version}
	}
	id.format = version
	want, err := strconv.ParseUint(strings.TrimSpace(sum), 16, 32)
	if !ok || err != nil || uint32(want) != crc32.Checksum([]byte(body), castagnoli) {
		return id, fmt.Errorf("IDENTITY has a wrong checksum")
	}
	if _, err := fmt.Sscanf(body, "lockstep data directory\nformat %d\ncluster %s\nnode %x\ninstance %s\n",
		&version, &id.cluster, &id.node, &instance); err != nil {
		return id, fmt.Errorf("cannot parse IDENTITY: %w", err)
	}
	if n, err := hex.Decode(id.instance[:], []byte(instance)); err != nil || n != len(id.instance) {
		return id, fmt.Errorf("IDENTITY has a wrong instance id %q", instance)
	}
	if _, rest, ok := strings.Cut(body, "\norigin "); ok {
		id.origin = strings.TrimSpace(rest)
	}
	return id, nil
}

// newInstance draws an instance id.
func newInstance(random io.Reader) (InstanceID, error) {
	var id InstanceID
	if _, err := io.ReadFull(random, id[:]); err != nil {
		return id, fmt.Errorf("generate an instance id: %w", err)
	}
	return id, nil
}

// BarBefore durably keeps out programs that know no feature levels: they refuse the directory
// because a newer one wrote it.
func (s *Store) BarBefore() error {
	if s.id.format == formatVersion {
		return nil
	}
	next := s.id
	next.format = formatVersion
	if err := writeFile(s.fs, s.dir, identityName, next.encode()); err != nil {
		return fmt.Errorf("storage: write the identity: %w", err)
	}
	return nil
}
