package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// children are the processes that pid has started, where the system shows them in /proc. PostgreSQL
// gives each of them a group of its own, so that the end of the first process does not end the
// others at once.
func children(pid int) (found []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		var state string
		var parent int
		_, rest, _ := strings.Cut(string(text), ") ") // behind the name, which may contain anything
		if _, err := fmt.Sscan(rest, &state, &parent); err != nil || parent != pid {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			found = append(found, child)
		}
	}
	return found
}
