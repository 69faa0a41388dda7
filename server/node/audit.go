package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/lockstep-dev/lockstep/server/audit"
	"github.com/lockstep-dev/lockstep/server/transport"
)

// AuditPeers returns the ids of the other nodes in the order in which they are best asked for their
// audit logs: the leader, which has the most to do, comes last. It may be called after the first
// call of Loaded or Events.
func (n *Node) AuditPeers() []uint64 {
	var ids []uint64
	for _, p := range n.transport.Peers() {
		ids = append(ids, p.Node)
	}
	if i := slices.Index(ids, n.Status().Leader); i >= 0 {
		leader := ids[i]
		ids = append(slices.Delete(ids, i, i+1), leader)
	}
	return ids
}

// AskAudit asks a peer for lines of its audit log, like [transport.Transport.AskAudit], under the
// rule of AuditPeers. Its error matches [audit.ErrNoLog] if the peer keeps no audit log.
func (n *Node) AskAudit(ctx context.Context, peer, from, to uint64) (io.ReadCloser, error) {
	answer, err := n.transport.AskAudit(ctx, peer, from, to)
	if errors.Is(err, transport.ErrNoAudit) {
		err = fmt.Errorf("%w: %w", audit.ErrNoLog, err)
	}
	return answer, err
}
