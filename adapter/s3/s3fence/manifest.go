package s3fence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lockstep-dev/lockstep/fence"
)

// format is the version of what is written. A manifest of another one admits nobody.
const format = 1

// maxManifestBytes bounds what is read of a manifest. The largest that is written has about 4 KiB:
// three keys, a lock name and a backend.
const maxManifestBytes = 64 << 10

// A manifest is what is stored at the manifest key of a resource: the mark, and where the data are.
// The zero manifest is that of a resource that has none.
type manifest struct {
	Format int        `json:"format"`
	Mark   fence.Mark `json:"mark"`
	// Nonce is drawn for each change. It makes the bytes of every version differ from those of all
	// others, and so the ETag.
	Nonce string `json:"nonce"`
	// Wrote is the nonce of the last change that counts as a write: later ones that do not write
	// carry it on.
	Wrote string `json:"wrote,omitempty"`
	// Data is the key of the data. Empty: there are none, or none any more.
	Data string `json:"data,omitempty"`
	// Previous is the key of the data before, which are there until the next write, for readers
	// that are on the way to them.
	Previous string `json:"previous,omitempty"`
}

// A change is what a step does to the data. The zero change keeps them.
type change struct {
	kind changeKind
	key  string // of the new data, for replaceData
}

type changeKind int

const (
	keepData changeKind = iota
	replaceData
	removeData
)

// take is the manifest after a step, as the rule has it: m itself when the step changes nothing.
// dead and nonce are those of after.
func (m manifest) take(grant fence.Grant, s fence.Step, c change, nonce string) (next manifest, dead []string, err error) {
	mark, err := m.Mark.Admit(grant, s)
	if err != nil || c.kind == keepData && mark == m.Mark {
		return m, nil, err
	}
	next, dead = m.after(mark, s, c, nonce)
	return next, dead, nil
}

// after is the manifest that follows m, and the keys of the data that nobody needs then. nonce is
// new for the change.
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

// bears reports whether the change with this nonce has taken effect, and no other write since.
func (m manifest) bears(nonce string) bool { return m.Nonce == nonce || m.Wrote == nonce }

// refersTo reports whether the data at key are still needed.
func (m manifest) refersTo(key string) bool { return key == m.Data || key == m.Previous }

func (m manifest) encode() []byte {
	text, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("s3fence: a manifest of strings and numbers is not encoded: %v", err))
	}
	return append(text, '\n')
}

// errNoManifest is not ErrInvalid: it is no verdict about a writer.
var errNoManifest = errors.New("the manifest's object holds something that is no manifest of this resource")

// decode reads a manifest. It refuses what no guard can have written for the resource.
func decode(text []byte, k keys) (manifest, error) {
	var m manifest
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return manifest{}, fmt.Errorf("%w: %v", errNoManifest, err) // not wrapped: it is no verdict
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

// load reads the manifest of a resource, and the ETag by which it is replaced. Both are zero when
// there is none.
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
