package server

import (
	"bytes"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/lockstep-dev/lockstep/server/command"
)

// stateFactor is about how much memory a byte of the state takes: its structures, its part of a
// snapshot in progress, and what the garbage collector has not collected yet.
const stateFactor = 4

// warnOfMemory warns at startup if the state may exceed the memory before its limit is reached.
func warnOfMemory(log *slog.Logger, limits command.Limits, memory uint64) {
	if need := stateFactor * uint64(limits.StateBytes); memory > 0 && memory < need {
		log.Warn("the lock table may outgrow the memory of this machine before it reaches its limit",
			"limit", limits.StateBytes, "needs about", need, "memory", memory,
			"remedy", "give the machine more memory, or monitor lockstep_state_bytes: it should stay below a quarter of the memory")
	}
}

// memory returns how much memory this process may use: that of the machine, or of its control group
// if that is less; 0 if neither is known.
func memory() uint64 {
	least := memTotal(os.ReadFile("/proc/meminfo"))
	if text, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && (n < least || least == 0) { // or "max"
			least = n
		}
	}
	return least
}

// memTotal reads MemTotal, in bytes.
func memTotal(meminfo []byte, _ error) uint64 {
	for line := range bytes.Lines(meminfo) {
		if rest, ok := bytes.CutPrefix(line, []byte("MemTotal:")); ok {
			kib, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"), 10, 64) // 0 if the text is invalid
			return kib << 10
		}
	}
	return 0
}
