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
	Peers    []Peer   `json:"peers"`    // the present members, including that node
	Founders []uint64 `json:"founders"` // the voters that the group started with
	// Cluster is the id used in handshakes, and Birth the birth of the cluster, if it has one.
	// Older builds report neither.
	Cluster string `json:"cluster,omitempty"`
	Birth   string `json:"birth,omitempty"`
}

// A Joiner is a [Handler] that can tell added nodes what they need to start.
type Joiner interface {
	// Join answers a node that gives a name but no id. A NotAdmitted error tells it that waiting
	// won't help.
	Join(id Identity) (JoinAnswer, error)
}

func (t *Transport) welcomeJoin(id Identity) ([]byte, error) {
	joiner, ok := t.cfg.Handler.(Joiner)
	if !ok {
		return nil, errors.New("joining is not possible here")
	}
	answer, err := joiner.Join(id)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

// AskToJoin asks the member at an address what the node self, whose id is not known yet, needs to
// start. [ErrNotAdmitted] says that this member does not expect the node.
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

// deadline ends pending reads and writes. An error means that the connection has already ended.
func deadline(c net.Conn) { _ = c.SetDeadline(time.Unix(1, 0)) }
