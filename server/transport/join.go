package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// A JoinAnswer is what a member tells a node that was added and has not started yet.
type JoinAnswer struct {
	Node     uint64   `json:"node,string"`
	Peers    []Peer   `json:"peers"`    // the present members, that node included
	Founders []uint64 `json:"founders"` // the voters that the group started with
	// Cluster is the id that handshakes have, and Birth that of the cluster, if it has one. Builds before these tell neither.
	Cluster string `json:"cluster,omitempty"`
	Birth   string `json:"birth,omitempty"`
}

// A Joiner is a [Handler] that can tell nodes which were added what they need to start.
type Joiner interface {
	// Join answers a node that comes under a name, without an id. An error of NotAdmitted tells it that waiting
	// won't help.
	Join(id Identity) (JoinAnswer, error)
}

func (t *Transport) welcomeJoin(id Identity) ([]byte, error) {
	joiner, ok := t.cfg.Handler.(Joiner)
	if !ok {
		return nil, errors.New("nobody can join here")
	}
	answer, err := joiner.Join(id)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

// AskToJoin asks the member at an address what the node self, whose id is not known yet, needs to start.
// [ErrNotAdmitted] says that this member does not want it.
func AskToJoin(ctx context.Context, cfg Config, address string) (JoinAnswer, error) {
	var answer JoinAnswer
	if cfg.Dial == nil {
		cfg.Dial = dialTCP
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	raw, err := cfg.Dial(ctx, address)
	if err != nil {
		return answer, err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { deadline(raw) })()
	t := &Transport{cfg: cfg}
	t.table.Store(&peerTable{})
	told, err := t.greet(newConn(raw), Peer{Address: address}, purposeJoin, cfg.Self)
	if err != nil {
		return answer, err
	}
	if err := json.Unmarshal(told, &answer); err != nil {
		return answer, fmt.Errorf("handshake: %w", err)
	}
	return answer, nil
}

// deadline ends reads and writes that wait. Its error says that the connection has ended already.
func deadline(c net.Conn) { _ = c.SetDeadline(time.Unix(1, 0)) }
