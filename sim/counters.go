package sim

// Names of noteworthy events, in addition to those of package check.
const (
	messageLost      = "raft message lost"
	messageDoubled   = "raft message doubled"
	nodeCrashed      = "node ended"
	nodeExited       = "node ended itself"
	writesLost       = "crash lost pending writes"
	snapshotMade     = "snapshot made"
	snapshotSent     = "snapshot sent"
	snapshotReceived = "snapshot received"
	streamTorn       = "stream torn"
	streamDeaf       = "stream went deaf"
	changeHeldBack   = "change held back behind answers"
	clientDied       = "client died"
	cancelSent       = "cancel asked for"
	readAnswered     = "read answered"
	readRefused      = "read refused"
	callerRenewed    = "unary keepalive answered"
	callRepeated     = "unary acquire repeated"
	refusedNotReady  = "refused: UNAVAILABLE"
	revokeAnswered   = "revoke answered"
	revokedUnheard   = "revoked while the stream was broken"
)
