package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// children returns the processes that pid has started, if the system shows them in /proc.
// PostgreSQL gives each of them its own process group, so the end of the first process does not end
// the others at once.
func children(pid int) (found []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended in the meantime
		}
		var state string
		var parent int
		_, rest, _ := strings.Cut(string(text), ") ") // after the name, which may contain anything
		if _, err := fmt.Sscan(rest, &state, &parent); err != nil || parent != pid {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			found = append(found, child)
		}
	}
	return found
}
