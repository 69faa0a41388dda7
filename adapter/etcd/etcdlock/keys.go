package etcdlock

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
)

// The keys of a lock "orders/42" are
//
//	lockstep/orders%2F42/x/<id of the claim>    exclusive
//	lockstep/orders%2F42/s/<id of the claim>    shared
//
// and the key of a session is lockstep/_session/<id of the lease>. Escaping leaves no "/" in a
// name, so no name's prefix covers another name; and no name begins with "_", so none looks like a
// session.
const (
	exclusiveDir = "x/"
	sharedDir    = "s/"
	sessionDir   = "_session/"
)

// root is the prefix of all keys of a name.
func (c Config) root(name string) string { return c.Prefix + "/" + url.PathEscape(name) + "/" }

// exclusives is the prefix of the keys of exclusive claims on a name; shareds is the prefix for
// shared ones.
func (c Config) exclusives(name string) string { return c.root(name) + exclusiveDir }
func (c Config) shareds(name string) string    { return c.root(name) + sharedDir }

// key is the key of a claim.
func (c Config) key(name string, mode lockstep.Mode, id string) string {
	if mode == lockstep.Shared {
		return c.shareds(name) + id
	}
	return c.exclusives(name) + id
}

// sessionKey is the key of a session.
func (c Config) sessionKey(id clientv3.LeaseID) string {
	return c.Prefix + "/" + sessionDir + leaseText(id)
}

// leaseText formats the id of a lease as etcdctl does.
func leaseText(id clientv3.LeaseID) string { return fmt.Sprintf("%016x", int64(id)) }

// A record is the value of a claim's key, in JSON.
type record struct {
	// Since is when the claim was made, on the clock of its process: etcd keeps no times.
	Since time.Time `json:"since"`
	// Token is the token of a shared claim that joined others. Zero: the create revision is the
	// token.
	Token    lockstep.Token    `json:"token,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func (r record) encode() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("etcdlock: record %+v: %v", r, err))
	}
	return string(text)
}

// An entry is a claim as stored in etcd.
type entry struct {
	key      string
	shared   bool
	created  int64 // create revision: the place in the queue
	modified int64
	lease    clientv3.LeaseID
	record   record
}

// readEntry reads the key of a claim on the name with this root. ok is false if the key is not a
// claim. A value that something else wrote counts as empty: only the place in the queue matters.
func readEntry(root string, kv *mvccpb.KeyValue) (e entry, ok bool) {
	rest, ok := strings.CutPrefix(string(kv.Key), root)
	shared := strings.HasPrefix(rest, sharedDir)
	if !ok || !shared && !strings.HasPrefix(rest, exclusiveDir) {
		return entry{}, false
	}
	e = entry{
		key: string(kv.Key), shared: shared,
		created: kv.CreateRevision, modified: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease),
	}
	if json.Unmarshal(kv.Value, &e.record) != nil {
		e.record = record{}
	}
	return e, true
}

// token is the token of the claim once it is granted, as far as its own key shows.
func (e entry) token() lockstep.Token {
	if e.record.Token != 0 {
		return e.record.Token
	}
	return lockstep.Token(e.created)
}
