package supervise

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math/bits"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ignoreHandler is the kernel's SIG_IGN.
const ignoreHandler = 1

// signalsAtStart returns the signals that were ignored and blocked when this program started, for a
// [program]. It must be called before any signal is caught.
//
// The Go runtime installs its handlers, and unblocks the signals that end a program, before main.
// It keeps the previous settings in variables of its own. They are read here, since nothing exports
// them: without them a command could not inherit an ignored SIGPIPE, which service managers set. If
// the program has no symbol table, a command inherits the settings that the runtime leaves alone,
// such as ignored SIGHUP and SIGINT.
func signalsAtStart() signalSettings {
	s := signalSettings{ignored: ignoredNow()}
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return s
	}
	defer program.Close()
	symbols := openSymbols(program)
	for sig, handler := range symbols.read("runtime.fwdSig", maxSignal) {
		if handler == ignoreHandler {
			s.ignored |= 1 << (sig - 1)
		}
	}
	for _, mask := range symbols.read("runtime.initSigmask", 1) {
		s.blocked, s.masked = mask, true
	}
	return s
}

// ignoredNow returns the signals ignored now, or zero.
func ignoredNow() uint64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "SigIgn:")
	line, _, _ := strings.Cut(rest, "\n")
	mask, _ := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return mask
}

// block sets the blocked signals of the calling thread.
func block(mask uint64) {
	var set unix.Sigset_t
	split(set.Val[:], mask)
	unix.PthreadSigmask(unix.SIG_SETMASK, &set, nil)
}

// split stores a mask in the words of a signal set. Their size depends on the architecture.
func split[Word uint32 | uint64](words []Word, mask uint64) {
	for i := range words {
		words[i] = Word(mask)
		mask >>= bits.Len64(uint64(^Word(0)))
	}
}

// symbols is the symbol table of this program, if it is a 64-bit program.
type symbols struct {
	order          binary.ByteOrder // nil: no table
	entries, names []byte
	moved          uint64 // distance between the load address and the link address
}

func openSymbols(file *os.File) (s symbols) {
	program, err := elf.NewFile(file)
	if err != nil || program.Class != elf.ELFCLASS64 {
		return s
	}
	if program.Type == elf.ET_DYN {
		s.moved = loadedAt()
	}
	table, names := program.SectionByType(elf.SHT_SYMTAB), program.Section(".strtab")
	if table == nil || names == nil {
		return s
	}
	var errTable, errNames error
	s.entries, errTable = table.Data()
	s.names, errNames = names.Data()
	if errTable == nil && errNames == nil {
		s.order = program.ByteOrder
	}
	return s
}

// read returns the words of a variable, or none if there is no such variable of that size.
func (s symbols) read(name string, words int) []uint64 {
	address := s.address(name, uint64(words)*8)
	memory, err := os.Open("/proc/self/mem")
	if err != nil || address == 0 {
		return nil
	}
	defer memory.Close()
	bytes := make([]byte, words*8)
	if _, err := memory.ReadAt(bytes, int64(address)); err != nil {
		return nil
	}
	values := make([]uint64, words)
	for i := range values {
		values[i] = s.order.Uint64(bytes[i*8:])
	}
	return values
}

// address returns the address of a variable, or zero. It decodes only the entries that it compares:
// the table has a hundred thousand.
func (s symbols) address(name string, size uint64) uint64 {
	at := bytes.Index(s.names, []byte("\x00"+name+"\x00"))
	if s.order == nil || at < 0 {
		return 0
	}
	for entries := s.entries; len(entries) >= elf.Sym64Size; entries = entries[elf.Sym64Size:] {
		if s.order.Uint32(entries) == uint32(at+1) && s.order.Uint64(entries[16:]) == size {
			return s.order.Uint64(entries[8:]) + s.moved
		}
	}
	return 0
}

// loadedAt returns the start address of a position-independent program, which is linked for address
// zero.
func loadedAt() uint64 {
	path, _ := os.Readlink("/proc/self/exe")
	maps, _ := os.ReadFile("/proc/self/maps")
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line) // from-to, permissions, offset, device, inode, path
		if len(fields) >= 6 && strings.HasSuffix(strings.TrimSpace(line), path) && strings.Trim(fields[2], "0") == "" {
			from, _, _ := strings.Cut(fields[0], "-")
			address, _ := strconv.ParseUint(from, 16, 64)
			return address
		}
	}
	return 0
}
