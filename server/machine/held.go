package machine

// A heldList has all claims that are among the holders of a name, in grant order, so that the
// oldest one is at hand.
type heldList struct{ first, last *claim }

func (l *heldList) add(c *claim) {
	c.older = l.last
	if l.last == nil {
		l.first = c
	} else {
		l.last.newer = c
	}
	l.last = c
}

func (l *heldList) remove(c *claim) {
	if c.older == nil {
		l.first = c.newer
	} else {
		c.older.newer = c.newer
	}
	if c.newer == nil {
		l.last = c.older
	} else {
		c.newer.older = c.older
	}
	c.older, c.newer = nil, nil
}
