package machine

// A Capture walks over the state as it was when it was started, while commands go on.
type Capture struct{ m *Machine }

func (m *Machine) changing(id SessionID) {
	if m.capture != nil {
		m.capture.before(shardOf(id))
	}
}

func (c *Capture) before(shard int) {}

// StartCapture starts a snapshot of the present state.
func (m *Machine) StartCapture() *Capture { panic("unfinished") }

// Next returns the next part of the snapshot.
func (c *Capture) Next() (chunk []byte, last bool) { panic("unfinished") }

// AbortCapture ends the capture that runs, if one does.
func (m *Machine) AbortCapture() { m.capture = nil }
