package storage

import (
	"fmt"
)

// KnownInstance tells which instance of a node this one has met first, if any.
func (s *Store) KnownInstance(node uint64) (InstanceID, bool, error) {
	v, err := s.note(instanceKey(node))
	if err != nil || v == nil {
		return InstanceID{}, false, err
	}
	if len(v) != len(InstanceID{}) {
		return InstanceID{}, false, fmt.Errorf("storage: instance record of node %016x has %d bytes", node, len(v))
	}
	return InstanceID(v), true, nil
}

// RememberInstance notes the instance of a node for ever.
func (s *Store) RememberInstance(node uint64, id InstanceID) error {
	return s.remember(instanceKey(node), id[:])
}

// note reads a record that is not of a group; nil: there is none.
func (s *Store) note(key []byte) ([]byte, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	return s.get(key)
}

// remember writes such a record durably.
func (s *Store) remember(key, value []byte) (err error) {
	if err := s.Err(); err != nil {
		return err
	}
	defer rescue(&err)
	batch := s.db.NewBatch()
	put(batch, key, value)
	return s.commit(batch, true)
}
