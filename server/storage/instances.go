package storage

import (
	"fmt"
)

// KnownInstance returns the first instance of a node that this one has met, if any.
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

// RememberInstance records the instance of a node permanently.
func (s *Store) RememberInstance(node uint64, id InstanceID) error {
	return s.remember(instanceKey(node), id[:])
}

// note reads a record that belongs to no group; nil: there is none.
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
