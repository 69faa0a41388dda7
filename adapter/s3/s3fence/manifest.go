package s3fence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lockstep-dev/lockstep/fence"
)

// format is the version of the layout. A manifest of another version admits no one.
const format = 1

// maxManifestBytes bounds how much of a manifest is read. The largest one written has about 4 KiB:
// three keys, a lock name and a backend.
const maxManifestBytes = 64 << 10

// A manifest is the object at the manifest key of a resource: the mark, and where the data is. The
// zero manifest stands for a resource that has none.
type manifest struct {
	Format int        `json:"format"`
	Mark   fence.Mark `json:"mark"`
	// Nonce is random for each change. It makes the bytes of every version unique, and so the ETag.
	Nonce string `json:"nonce"`
	// Wrote is the nonce of the last change that counts as a write: later changes that do not write
	// keep it.
	Wrote string `json:"wrote,omitempty"`
	// Data is the key of the data. Empty: there is none, or it was deleted.
	Data string `json:"data,omitempty"`
	// Previous is the key of the previous data, which stays until the next write for readers that
	// are about to read it.
	Previous string `json:"previous,omitempty"`
}

// A change is what a step does to the data. The zero change keeps it.
type change struct {
	kind changeKind
	key  string // key of the new data, for replaceData
}

type changeKind int

const (
	keepData changeKind = iota
	replaceData
	removeData
)

// take returns the manifest after a step, as the rule defines it: m itself if the step changes
// nothing. dead and nonce are as in after.
func (m manifest) take(grant fence.Grant, s fence.Step, c change, nonce string) (next manifest, dead []string, err error) {
	mark, err := m.Mark.Admit(grant, s)
	if err != nil || c.kind == keepData && mark == m.Mark {
		return m, nil, err
	}
	next, dead = m.after(mark, s, c, nonce)
	return next, dead, nil
}

// after returns the manifest that follows m, and the keys of the data that is then no longer
// needed. nonce is new for the change.
func (m manifest) after(mark fence.Mark, s fence.Step, c change, nonce string) (next manifest, dead []string) {
	next = m
	next.Format, next.Mark, next.Nonce = format, mark, nonce
	if s != fence.Enter {
		next.Wrote = nonce
	}
	switch {
	case c.kind == replaceData && c.key != m.Data:
		next.Data, next.Previous = c.key, m.Data
	case c.kind == removeData:
		next.Data, next.Previous = "", ""
	}
	for _, key := range []string{m.Data, m.Previous} {
		if key != "" && !next.refersTo(key) {
			dead = append(dead, key)
		}
	}
	return next, dead
}

// bears reports whether the change with this nonce has taken effect, with no other write since.
func (m manifest) bears(nonce string) bool { return m.Nonce == nonce || m.Wrote == nonce }

// refersTo reports whether the data at key is still needed.
func (m manifest) refersTo(key string) bool { return key == m.Data || key == m.Previous }

func (m manifest) encode() []byte {
	text, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("s3fence: a manifest of strings and numbers is not encoded: %v", err))
	}
	return append(text, '\n')
}

// errNoManifest is not ErrInvalid: it is not a verdict about a writer.
var errNoManifest = errors.New("the manifest's object holds something that is no manifest of this resource")

// decode reads a manifest. It refuses one that no guard could have written for the resource.
func decode(text []byte, k keys) (manifest, error) {
	var m manifest
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return manifest{}, fmt.Errorf("%w: %v", errNoManifest, err) // not wrapped: this is not a verdict
	}
	switch {
	case decoder.More():
		return manifest{}, fmt.Errorf("%w: there is more behind it", errNoManifest)
	case m.Format != format:
		return manifest{}, fmt.Errorf("%w: its format is %d, this guard knows %d", errNoManifest, m.Format, format)
	case !m.Mark.Bound():
		return manifest{}, fmt.Errorf("%w: it belongs to no lock", errNoManifest)
	case m.Nonce == "":
		return manifest{}, fmt.Errorf("%w: it has no nonce", errNoManifest)
	}
	for _, key := range []string{m.Data, m.Previous} {
		if _, ours := k.token(key); key != "" && !ours {
			return manifest{}, fmt.Errorf("%w: it refers to %.200q", errNoManifest, key)
		}
	}
	return m, nil
}

// load reads the manifest of a resource, and its ETag for replacing it. Both are zero if there is
// none.
func (s store) load(ctx context.Context, k keys) (m manifest, etag string, err error) {
	content, etag, err := s.get(ctx, k.manifest, maxManifestBytes)
	switch {
	case noSuchObject(err):
		return manifest{}, "", nil
	case err != nil:
		return manifest{}, "", failed(err)
	}
	m, err = decode(content, k)
	return m, etag, err
}
