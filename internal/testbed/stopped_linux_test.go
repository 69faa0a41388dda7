package testbed

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// busyFile is the environment variable that makes the test binary a server whose threads all count
// in the file that it names.
const busyFile = "TESTBED_TEST_BUSY"

const busyThreads = 20

func TestMain(m *testing.M) {
	if name := os.Getenv(busyFile); name != "" {
		count(name)
	}
	os.Exit(m.Run())
}

func init() { runtime.LockOSThread() } // the first thread, which the kernel prefers for a signal, counts too

func count(name string) {
	runtime.GOMAXPROCS(busyThreads)
	file, err := os.Create(name)
	if err != nil {
		panic(err)
	}
	for i := range busyThreads - 1 {
		go countAt(file, i)
	}
	countAt(file, busyThreads-1)
}

func countAt(file *os.File, i int) {
	runtime.LockOSThread()
	for n := uint64(1); ; n++ {
		if _, err := file.WriteAt(binary.LittleEndian.AppendUint64(nil, n), int64(8*i)); err != nil {
			panic(err)
		}
	}
}

// The thread that handles the signal waits for a processor while the others keep running.
func TestAFrozenServerDoesNothing(t *testing.T) {
	name := filepath.Join(t.TempDir(), "counts")
	read := func() []byte {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(Command{Path: self, Env: []string{busyFile + "=" + name}, Ready: func() error {
		text, err := os.ReadFile(name)
		if err == nil && len(text) < 8*busyThreads {
			err = os.ErrNotExist
		}
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	for range 20 {
		if err := p.Freeze(); err != nil {
			t.Fatal(err)
		}
		frozen := read()
		time.Sleep(30 * time.Millisecond)
		last := read()
		if !bytes.Equal(frozen, last) {
			t.Fatal("a thread kept running after Freeze")
		}
		if err := p.Thaw(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); bytes.Equal(read(), last); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the server does nothing after Thaw")
			}
		}
	}
}
