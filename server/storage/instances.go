package storage

import (
	"fmt"
)

// KnownInstance tells which instance of a node this one has met first, if any.
func (s *Store) KnownInstance(node uint64) (InstanceID, bool, error) {
	if err := s.Err(); err != nil {
		return InstanceID{}, false, err
	}
	v, err := s.get(instanceKey(node))
	if err != nil || v == nil {
		return InstanceID{}, false, err
	}
	if len(v) != len(InstanceID{}) {
		return InstanceID{}, false, fmt.Errorf("storage: instance record of node %016x has %d bytes", node, len(v))
	}
	return InstanceID(v), true, nil
}

// RememberInstance notes the instance of a node for ever.
func (s *Store) RememberInstance(node uint64, id InstanceID) (err error) {
	if err := s.Err(); err != nil {
		return err
	}
	defer rescue(&err)
	batch := s.db.NewBatch()
	put(batch, instanceKey(node), id[:])
	return s.commit(batch, true)
}
