package node

import (
	"sync"

	"github.com/lockstep-dev/lockstep/server/lead"
)

// streams finds the receiver of a reply. The loop looks receivers up; connections add and remove
// them.
type streams struct {
	mu struct {
		sync.RWMutex
		last lead.StreamID
		byID map[lead.StreamID]*stream
	}
	touched []*stream // used only by the loop
}

// A stream is one receiver.
type stream struct {
	deliver func([]lead.Reply)
	pending []lead.Reply // of the current turn; used only by the loop
}

func (s *streams) init() { s.mu.byID = make(map[lead.StreamID]*stream) }

func (s *streams) add(deliver func([]lead.Reply)) lead.StreamID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.last++
	s.mu.byID[s.mu.last] = &stream{deliver: deliver}
	return s.mu.last
}

// remove reports whether the stream existed.
func (s *streams) remove(id lead.StreamID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.mu.byID[id]
	delete(s.mu.byID, id)
	return ok
}

func (s *streams) len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.mu.byID)
}

// deliver hands out the replies of a turn: one call for each stream, in order within each. Replies
// to a stream that is gone are dropped.
func (s *streams) deliver(replies []lead.Reply) {
	if len(replies) == 0 {
		return
	}
	s.mu.RLock()
	for _, r := range replies {
		st := s.mu.byID[r.Stream]
		if st == nil {
			continue
		}
		if len(st.pending) == 0 {
			s.touched = append(s.touched, st)
		}
		st.pending = append(st.pending, r)
	}
	s.mu.RUnlock()
	for i, st := range s.touched {
		out := st.pending
		st.pending, s.touched[i] = nil, nil
		st.deliver(out)
	}
	s.touched = s.touched[:0]
}
