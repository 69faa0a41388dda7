package client

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client/session"
)

// handlePrefix starts every handle; the number is the version of the rest. Later versions
// understand the handles of earlier ones.
const handlePrefix = "lockstep1."

// maxHandleBytes bounds what is decoded: several times the size of 16 names of 512 bytes, in JSON
// and base64.
const maxHandleBytes = 64 << 10

// maxSecretBytes bounds a session's secret; those of the service have 16 bytes.
const maxSecretBytes = 64

// A detachedLock is the contents of a handle.
type detachedLock struct {
	Cluster  string   `json:"cluster,omitempty"` // empty: unknown
	Session  string   `json:"session"`
	Secret   []byte   `json:"secret"`
	TTLMS    int64    `json:"ttl_ms"`
	Attach   uint64   `json:"attach"`
	Seen     uint64   `json:"seen"`
	Seq      uint64   `json:"seq"`
	Token    uint64   `json:"token,omitempty"`
	Names    []string `json:"names"`
	Mode     int      `json:"mode,omitempty"`
	Weight   int      `json:"weight,omitempty"`
	Capacity int      `json:"capacity,omitempty"`
}

func encodeHandle(cluster string, d session.Detached, cfg lockstep.AcquireConfig) lockstep.Handle {
	text, err := json.Marshal(detachedLock{
		Cluster: cluster, Session: d.ID, Secret: d.Secret, TTLMS: d.TTL.Milliseconds(), Attach: d.Attach, Seen: d.Seen, Seq: d.Seq, Token: d.Token,
		Names: cfg.Names, Mode: int(cfg.Mode), Weight: cfg.Weight, Capacity: cfg.Capacity,
	})
	if err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	return lockstep.Handle(handlePrefix + base64.RawURLEncoding.EncodeToString(text))
}

// decodeHandle checks the form of a handle. Its errors do not quote the handle, which is secret.
func decodeHandle(h lockstep.Handle) (cluster string, d session.Detached, cfg lockstep.AcquireConfig, err error) {
	body, found := strings.CutPrefix(string(h), handlePrefix)
	if !found || len(body) > maxHandleBytes {
		return "", d, cfg, badHandle("must start with " + handlePrefix + " and be complete, as Detach returned it")
	}
	var l detachedLock
	text, err := base64.RawURLEncoding.DecodeString(body)
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	ttl := time.Duration(l.TTLMS) * time.Millisecond
	if err != nil || l.Cluster != "" && !clusterID.MatchString(l.Cluster) || l.Session == "" || len(l.Secret) == 0 || len(l.Secret) > maxSecretBytes || l.Seq == 0 || len(l.Names) == 0 || lockstep.CheckTTL(ttl) != nil {
		return "", d, cfg, badHandle("is truncated or modified: pass it exactly as Detach returned it")
	}
	d = session.Detached{ID: l.Session, Secret: l.Secret, TTL: ttl, Attach: l.Attach, Seen: l.Seen, Seq: l.Seq, Token: l.Token}
	return l.Cluster, d, lockstep.AcquireConfig{Names: l.Names, Mode: lockstep.Mode(l.Mode), Weight: l.Weight, Capacity: l.Capacity}, nil
}

func badHandle(rule string) error {
	return &lockstep.InvalidError{Field: "handle", Rule: rule}
}
