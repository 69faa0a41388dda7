package lead

// An ending is a set of sessions or claims whose time is over and whose end is not applied yet, in
// the order in which they ran out. The zero value is empty.
type ending[K comparable] struct {
	order []K        // including those already dropped
	state map[K]bool // true: proposed in an entry in flight
	idle  int        // number of those not proposed
}

func (e *ending[K]) len() int { return len(e.state) }

func (e *ending[K]) has(k K) bool {
	_, ok := e.state[k]
	return ok
}

// proposed reports whether k is in an entry in flight.
func (e *ending[K]) proposed(k K) bool { return e.state[k] }

// fresh reports whether there is something to propose.
func (e *ending[K]) fresh() bool { return e.idle > 0 }

func (e *ending[K]) add(k K) {
	if e.has(k) {
		return
	}
	if e.state == nil {
		e.state = make(map[K]bool)
	}
	e.state[k] = false
	e.idle++
	e.order = append(e.order, k)
}

func (e *ending[K]) drop(k K) {
	proposed, ok := e.state[k]
	if ok && !proposed {
		e.idle--
	}
	delete(e.state, k)
}

// take marks keys as proposed, in order, as long as the sum of their weights stays within budget.
// The first is taken whatever its weight.
func (e *ending[K]) take(budget int, weight func(K) int) (taken []K) {
	if e.idle == 0 {
		return nil
	}
	rest := e.order[:0]
	for _, k := range e.order {
		proposed, ok := e.state[k]
		if !ok {
			continue
		}
		rest = append(rest, k)
		if proposed || budget <= 0 {
			continue
		}
		w := weight(k)
		if w > budget && len(taken) > 0 {
			budget = 0 // whole ones only, and in order
			continue
		}
		budget -= w
		e.state[k] = true
		e.idle--
		taken = append(taken, k)
	}
	e.order = rest
	return taken
}
