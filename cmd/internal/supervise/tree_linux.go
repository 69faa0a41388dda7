package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeSubreaper makes this process the parent of all orphaned descendants.
func becomeSubreaper() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// childAttributes sets the parent-death signal. It only reaches the direct child, but works even if
// this program and the watcher are killed together.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// dieWithParent sets the parent-death signal again for the calling thread, and reports whether the
// parent is still alive.
func dieWithParent(parent int) bool {
	err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	return err == nil && unix.Getppid() == parent
}

// lingers reports whether a group has processes that are not children of its watcher. On Linux, all
// descendants of a subreaper's child eventually become the subreaper's own children.
func lingers(processGroup) bool { return false }

// waitAll also waits for children whose exit signal is not SIGCHLD.
const waitAll = unix.WALL

// below lists the descendants of root, parents before children, without root itself, the processes
// in except, and the descendants of those. It may miss a process that is reparented while it runs.
func below(root int, except []int) ([]Process, error) {
	children := childrenFromTasks
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", unix.Gettid())); err != nil {
		table, err := parentTable()
		if err != nil {
			return nil, err
		}
		children = func(pid int) []int { return table[pid] }
	}
	var found []Process
	seen := map[int]bool{root: true}
	for _, pid := range except {
		seen[pid] = true
	}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, pid := range children(next[0]) {
			if !seen[pid] {
				seen[pid] = true
				next = append(next, pid)
				p, _ := look(pid)
				found = append(found, p)
			}
		}
	}
	return found, nil
}

// childrenFromTasks reads the children of each thread of a process, since a child belongs to the
// thread that forked it. A process that is gone has none.
func childrenFromTasks(pid int) []int {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/children", pid))
	if err != nil {
		return nil
	}
	var children []int
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// parentTable reads every process on the machine, for kernels that do not list children.
func parentTable() (map[int][]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil || unix.Access("/proc/self/stat", unix.R_OK) != nil {
		return nil, errNoTree
	}
	table := map[int][]int{}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			if _, parent := look(pid); parent > 0 {
				table[parent] = append(table[parent], pid)
			}
		}
	}
	return table, nil
}

// look reads a process and its parent. The parent is 0 if the process is gone or hidden.
func look(pid int) (p Process, parent int) {
	p.PID = pid
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		p.zombie = errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
		return p, 0
	}
	open, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
	if open < 0 || end < open {
		return p, 0
	}
	p.Name = string(text[open+1 : end])
	fields := strings.Fields(string(text[end+1:])) // state, parent, group, ...
	if len(fields) < 3 {
		return p, 0
	}
	p.zombie = fields[0] == "Z" || fields[0] == "X"
	p.group, _ = strconv.Atoi(fields[2])
	parent, _ = strconv.Atoi(fields[1])
	return p, parent
}

// Descends reports whether this process is a descendant of the process from.
func Descends(from int) bool {
	for at := unix.Getppid(); at > 1 || at == from; {
		if at == from {
			return from > 0
		}
		_, at = look(at)
	}
	return false
}
