package replica

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-dev/lockstep/server/command"
)

// describe formats members with their addresses.
func (s *membership) describe(ids []uint64) string {
	var all []string
	for _, id := range ids {
		m, ok := s.machine.Member(id)
		if i := slices.IndexFunc(s.cfg.Founders, func(f command.Member) bool { return f.ID == id }); !ok && i >= 0 {
			m, ok = s.cfg.Founders[i], true
		}
		if !ok {
			m = command.Member{Name: fmt.Sprintf("%016x", id), Address: "address unknown"}
		}
		all = append(all, fmt.Sprintf("%s (%s)", m.Name, m.Address))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// newestLevel returns the highest level that any member supports.
func (s *membership) newestLevel() (level uint32) {
	for _, id := range s.memberIDs() {
		level = max(level, s.met[id].Level)
	}
	return level
}

// lacking names the members that cannot apply a level, and those of which it is not known now.
func (s *membership) lacking(to uint32) string {
	var all []string
	for _, id := range s.memberIDs() {
		m, met := s.met[id]
		known := max(m.Level, 1) // builds that do not report a level
		switch {
		case id != s.cfg.ID && (!met || !s.heardOf(id)):
			all = append(all, s.describe([]uint64{id})+" is down, so its feature level is unknown: start it, or remove it")
		case known < to:
			all = append(all, fmt.Sprintf("%s supports level %d: upgrade it", s.describe([]uint64{id}), known))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}
