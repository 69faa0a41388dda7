//go:build linux

package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A keyboard is an interactive shell at its own terminal.
type keyboard struct {
	t      *testing.T
	master *os.File
	shell  *exec.Cmd
	mu     sync.Mutex
	screen bytes.Buffer // everything shown so far
	from   int          // where the next expect starts
}

// sit starts bash with job control at a new terminal.
func (w *world) sit() *keyboard {
	w.t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		w.t.Fatal("there is no bash here")
	}
	master, slave := openTerminal(w.t)
	defer slave.Close()
	k := &keyboard{t: w.t, master: master, shell: exec.Command(bash, "--norc", "--noprofile", "-i")}
	k.shell.Dir = w.dir
	k.shell.Env = append(w.env, "PS1=prompt> ", "TERM=dumb", "LOCKSTEP="+testBinary(w.t))
	k.shell.Stdin, k.shell.Stdout, k.shell.Stderr = slave, slave, slave
	k.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := k.shell.Start(); err != nil {
		w.t.Fatal(err)
	}
	read := make(chan struct{})
	go func() { defer close(read); k.read() }()
	w.t.Cleanup(func() {
		killSession(k.shell.Process.Pid)
		k.shell.Wait()
		master.Close()
		<-read
	})
	k.expect(`prompt> $`)
	return k
}

// killSession kills all processes of a session, including stopped ones.
func killSession(leader int) {
	for _, pid := range processes(func(stat []string) bool { return stat[3] == strconv.Itoa(leader) }) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal("there are no terminals here:", err)
	}
	var number int
	conn, err := master.SyscallConn()
	if err == nil {
		conn.Control(func(fd uintptr) {
			if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
				number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func (k *keyboard) read() {
	buffer := make([]byte, 4096)
	for {
		n, err := k.master.Read(buffer)
		k.mu.Lock()
		k.screen.Write(buffer[:n])
		k.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// press sends keys unchanged; \x03 is ctrl-C, \x1a ctrl-Z.
func (k *keyboard) press(keys string) {
	k.t.Helper()
	if _, err := k.master.WriteString(keys); err != nil {
		k.t.Fatal(err)
	}
}

// expect waits until the output since the last expect matches.
func (k *keyboard) expect(pattern string) string {
	k.t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		k.mu.Lock()
		shown := k.screen.String()[k.from:]
		at := re.FindStringIndex(shown)
		if at != nil {
			k.from += at[1]
		}
		k.mu.Unlock()
		if at != nil {
			return shown[at[0]:at[1]]
		}
		if time.Now().After(end) {
			k.t.Fatalf("the screen never showed %q; it shows:\n%s", pattern, shown)
		}
	}
}

func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAShellUnderRunHasTheTerminal(t *testing.T) {
	k := newWorld(t).sit()
	k.press("PS1='inner> ' $LOCKSTEP run term/a -- bash --norc --noprofile\n")
	k.expect(`\ninner> $`)
	k.press("echo reads; read line; echo got=$line lock=$LOCKSTEP_LOCK\n")
	k.expect(`\nreads\r\n`)
	k.press("typed\n")
	k.expect(`got=typed lock=term/a\r\n`)
	k.press("sh -c 'echo up; exec sleep 1000'\n")
	k.expect(`\nup\r\n`)
	k.press("\x03")
	k.expect(`inner> $`)
	k.press("echo code=$?\n")
	k.expect(`\ncode=130\r\n`)
	k.press("exit 7\n")
	k.expect(`prompt> $`)
	k.press("echo code=$?; read line; echo got=$line\n")
	k.expect(`\ncode=7\r\n`)
	k.press("again\n")
	k.expect(`\ngot=again\r\n`)
}

func TestCtrlCEndsTheCommandAndReleasesTheLock(t *testing.T) {
	w := newWorld(t)
	k := w.sit()
	k.press("$LOCKSTEP run x -- sh -c 'echo up; exec sleep 1000'\n")
	k.expect(`\nup\r\n`)
	k.press("\x03")
	k.expect(`prompt> $`)
	k.press("echo code=$?\n")
	k.expect(`\ncode=130\r\n`)
	if !w.has("released") {
		t.Error("the lock was not released")
	}
}

func TestCtrlZStopsTheCommandAndGivesThePrompt(t *testing.T) {
	w := newWorld(t)
	k := w.sit()
	k.press("$LOCKSTEP run x -- sh -c 'echo $$ > pid; echo up; read line; echo got=$line'\n")
	k.expect(`\nup\r\n`)
	pid := w.pids("pid")[0]
	k.press("\x1a")
	k.expect(`not being renewed, and will be lost in`)
	k.expect(`Stopped[^\n]*\n(.*\n)*prompt> $`)
	if state, _ := processState(pid); state != 'T' {
		t.Errorf("the command is in state %c, want T", state)
	}
	k.press("fg\n")
	k.expect(`\n.*run x[^\n]*\n`)
	k.press("hello\n")
	k.expect(`\ngot=hello\r\n`)
	k.expect(`prompt> $`)
	k.press("echo code=$?\n")
	k.expect(`\ncode=0\r\n`)
}

func TestACommandStoppedBeyondItsLeaseIsLost(t *testing.T) {
	w := newWorld(t)
	k := w.sit()
	k.press("$LOCKSTEP run --ttl 3 x -- sh -c 'echo $$ > pid; echo up; exec sleep 1000'\n")
	k.expect(`\nup\r\n`)
	pid := w.pids("pid")
	k.press("\x1a")
	k.expect(`prompt> $`)
	w.gone(pid...)
	k.press("fg\n")
	k.expect(`lost x `)
	k.expect(`prompt> $`)
	k.press("echo code=$?\n")
	k.expect(`\ncode=121\r\n`)
}

func TestTheOtherEndOfAPipelineKeepsTheKeyboard(t *testing.T) {
	k := newWorld(t).sit()
	k.press("$LOCKSTEP run x -- sh -c 'echo from command; exec sleep 1000' | { read line; echo $line; read key </dev/tty; echo key=$key; }\n")
	k.expect(`\nfrom command\r\n`)
	k.press("pressed\n")
	k.expect(`\nkey=pressed\r\n`)
	k.press("\x03") // for the whole pipeline; run passes it on
	k.expect(`prompt> $`)
}

func TestACommandThatReadsTheTerminalInAPipelineGetsIt(t *testing.T) {
	k := newWorld(t).sit()
	k.press("$LOCKSTEP run x -- sh -c 'read line; echo got=$line' | cat\n")
	time.Sleep(100 * time.Millisecond)
	k.press("typed\n")
	k.expect(`\ngot=typed\r\n`)
	k.expect(`prompt> $`)
}

func TestAPipelineStopsEachTimeThatCtrlZAsksForIt(t *testing.T) {
	w := newWorld(t)
	k := w.sit()
	k.press("$LOCKSTEP run x -- sh -c 'echo $$ > pid; echo up; exec sleep 1000' | cat\n")
	k.expect(`\nup\r\n`)
	pid := w.pids("pid")[0]
	for range 2 {
		k.press("\x1a")
		k.expect(`not being renewed, and will be lost in`)
		k.expect(`Stopped[^\n]*\n(.*\n)*prompt> $`)
		if state, _ := processState(pid); state != 'T' {
			t.Errorf("the command is in state %c, want T", state)
		}
		k.press("fg\n")
		k.expect(`\n.*run x[^\n]*\n`)
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			if state, _ := processState(pid); state != 'T' {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the command was not continued")
			}
		}
	}
	k.press("\x03")
	k.expect(`prompt> $`)
}

func TestTheTerminalIsRestoredAfterAKill(t *testing.T) {
	w := newWorld(t)
	k := w.sit()
	k.press("$LOCKSTEP run x -- sh -c 'stty raw -echo; echo $$ > pid; exec sleep 1000'\n")
	w.pids("pid")
	w.set("expired")
	k.expect(`prompt> $`)
	k.press("stty -a | tr ';' '\\n' | grep -c -e '-icanon' -e '-echo '; echo modes\n")
	if shown := k.expect(`(?s)\n\d+\r\nmodes`); !strings.HasPrefix(shown, "\n0") {
		t.Errorf("the terminal was left raw: %q", shown)
	}
}

func TestInTheGroupOfTheSessionsLeaderCtrlZDoesNothing(t *testing.T) {
	w := newWorld(t)
	master, slave := openTerminal(t)
	defer master.Close()
	p := &process{Cmd: exec.Command(testBinary(t), "run", "x", "--", "sh", "-c", "echo up > up; read line; echo got > got"), w: w, done: make(chan struct{})}
	p.Dir, p.Env = w.dir, w.env
	p.Stdin, p.Stdout, p.Stderr = slave, slave, slave
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	go func() { defer close(p.done); p.Wait() }()
	t.Cleanup(func() { p.Process.Kill(); <-p.done })
	w.read("up")
	master.WriteString("\x1a")
	time.Sleep(100 * time.Millisecond)
	master.WriteString("hello\n")
	w.read("got")
	if got := p.code(); got != 0 {
		t.Errorf("exit code %d", got)
	}
}

// A command prompts on the terminal itself, as sudo, ssh and git do, whatever its standard files
// are.
func TestACommandAsksOnTheTerminalWhateverItsInputIs(t *testing.T) {
	for _, files := range []string{"</dev/null", "</dev/null >out 2>&1"} {
		t.Run(files, func(t *testing.T) {
			k := newWorld(t).sit()
			k.press("$LOCKSTEP run x -- sh -c 'printf pass: >/dev/tty; read a </dev/tty; echo got=$a >/dev/tty' " + files + "\n")
			k.expect(`\npass:`)
			k.press("secret\n")
			k.expect(`got=secret\r\n`)
			k.expect(`prompt> $`)
			k.press("$LOCKSTEP run x -- sh -c 'echo up >/dev/tty; read a </dev/tty' " + files + "\n")
			k.expect(`\nup\r\n`)
			time.Sleep(100 * time.Millisecond)
			k.press("\x03")
			k.expect(`prompt> $`)
			k.press("echo code=$?\n")
			k.expect(`\ncode=130\r\n`)
		})
	}
}

// Every ctrl-C goes to the command: interactive programs rely on it. Two INT to run end a stubborn
// command.
func TestCtrlCIsTheCommands(t *testing.T) {
	w := newWorld(t)
	k := w.sit()
	k.press(`$LOCKSTEP run --ttl 3 --kill-after 0.2 x -- sh -c 'trap "echo int" INT; trap "" TERM; echo up; while :; do sleep 0.01; done'` + "\n")
	k.expect(`\nup\r\n`)
	for range 3 {
		k.press("\x03")
		k.expect(`int\r\n`)
	}
	text, _ := os.ReadFile(w.control + "/metadata")
	pid, _ := strconv.Atoi(regexp.MustCompile(`(?m)^pid=(\d+)$`).FindStringSubmatch(string(text))[1])
	syscall.Kill(pid, syscall.SIGINT)
	k.expect(`int\r\n`)
	syscall.Kill(pid, syscall.SIGINT)
	k.expect(`prompt> $`)
	k.press("echo code=$?\n")
	k.expect(`\ncode=137\r\n`)
}
