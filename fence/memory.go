package fence

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockstep-dev/lockstep"
)

// DefaultResources is how many resources a [Memory] has room for by default. With names of 20 bytes
// each resource takes up to 200 bytes, so all of them take 200 MB.
const DefaultResources = 1_000_000

// A Memory is a [Guard] whose marks live in one process and end with it. After a restart it has
// seen nothing, and an older holder that writes before the new one enters is admitted. That is
// enough where the resource lives in the same process, and for tests; otherwise use a guard that
// stores its marks.
type Memory struct {
	limit int
	mu    struct {
		sync.Mutex
		marks map[string]Mark
	}
}

var (
	_ Guard    = (*Memory)(nil)
	_ Resetter = (*Memory)(nil)
)

// NewMemory returns a Memory with room for limit resources; zero means [DefaultResources]. A
// resource is never forgotten, because its token would be forgotten too. New resources beyond the
// limit are refused with [lockstep.ErrQuota].
func NewMemory(limit int) *Memory {
	if limit <= 0 {
		limit = DefaultResources
	}
	m := &Memory{limit: limit}
	m.mu.marks = map[string]Mark{}
	return m
}

// Admit implements [Guard].
func (m *Memory) Admit(_ context.Context, resource string, g Grant, s Step) error {
	return m.change(resource, func(old Mark) (Mark, error) { return old.Admit(g, s) })
}

// Mark implements [Resetter].
func (m *Memory) Mark(_ context.Context, resource string) (Mark, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.marks[resource], CheckResource(resource)
}

// Reset implements [Resetter].
func (m *Memory) Reset(_ context.Context, resource string, from, to Mark) error {
	return m.change(resource, func(old Mark) (Mark, error) { return old.Reset(from, to) })
}

func (m *Memory) change(resource string, decide func(Mark) (Mark, error)) error {
	if err := CheckResource(resource); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old, known := m.mu.marks[resource]
	next, err := decide(old)
	if err != nil {
		return err
	}
	if !known && len(m.mu.marks) >= m.limit {
		return fmt.Errorf("%w: the guard has room for %d resources", lockstep.ErrQuota, m.limit)
	}
	m.mu.marks[resource] = next
	return nil
}
