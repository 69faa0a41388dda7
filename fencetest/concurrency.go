package fencetest

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

func concurrencyChecks() []check {
	return []check{
		{name: "writers with random tokens never let the accepted ones go down", run: checkRandomWriters},
		{name: "writers of equal bytes never let the accepted tokens go down", run: checkEqualWriters},
		{name: "a counter under rising tokens is exact", run: checkCounter},
	}
}

// A stamp makes a value that contains its token and shows when half of it is missing.
func stamp(token lockstep.Token) string {
	body := fmt.Sprintf("%d %s", token, strings.Repeat("x", 2000))
	return fmt.Sprintf("%08x %s", crc32.ChecksumIEEE([]byte(body)), body)
}

func stamped(value []byte) (lockstep.Token, error) {
	var token lockstep.Token
	if _, err := fmt.Sscanf(string(value), "%x %d ", new(uint32), &token); err != nil || stamp(token) != string(value) {
		return 0, fmt.Errorf("the value is no whole version: %q", excerpt(string(value)))
	}
	return token, nil
}

// A history records what writers and readers have seen, in order of time.
type history struct {
	mu sync.Mutex
	// top is the largest token known to have been accepted.
	top lockstep.Token
}

func (h *history) now() lockstep.Token {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.top
}

func (h *history) saw(token lockstep.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.top = max(h.top, token)
}

// checkRandomWriters writes random tokens while a reader watches. A token that is accepted or read
// must not be smaller than one whose acceptance was known before the call.
func checkRandomWriters(e *env) {
	var h history
	var done atomic.Bool
	var reader sync.WaitGroup
	reader.Go(func() { e.lookOn(&h, &done) })
	e.storm(&h, func(s Store, g fence.Grant) error { return s.Write(e.ctx, g, []byte(stamp(g.Token))) })
	done.Store(true)
	reader.Wait()
	value, err := e.open().Read(e.ctx)
	if err != nil {
		e.Fatalf("read at the end: %v", err)
	}
	if last, err := stamped(value); err != nil || last != h.now() {
		e.Errorf("the last value is of token %d (%v), the largest accepted is %d", last, err, h.now())
	}
	e.closed(&h)
}

// checkEqualWriters finds guards whose conditional write compares contents: here the contents
// return to what a slow writer has seen.
func checkEqualWriters(e *env) {
	var h history
	e.storm(&h, func(s Store, g fence.Grant) error { return s.Write(e.ctx, g, []byte("the same")) })
	e.holds(e.open(), "the same")
	e.closed(&h)
}

// storm writes random tokens, most of them rising, from many goroutines.
func (e *env) storm(h *history, write func(Store, fence.Grant) error) {
	together(e.guard.Writers, func(i int) {
		s := e.open()
		random := rand.New(rand.NewPCG(uint64(i), 7))
		for round := range e.guard.Rounds {
			token := lockstep.Token(1 + 5*round + random.IntN(10))
			before := h.now()
			switch err := write(s, e.grant(token)); {
			case err == nil && token < before:
				e.Errorf("token %d was accepted after %d", token, before)
			case err == nil:
				h.saw(token)
			case !errors.Is(err, fence.ErrStale):
				e.Errorf("write with token %d: %v", token, err)
			}
		}
	})
}

// closed checks that the mark is the largest token accepted.
func (e *env) closed(h *history) {
	e.Helper()
	s, top := e.open(), h.now()
	if top < 2 {
		e.Fatalf("the largest token accepted is %d: hardly any write was", top)
	}
	e.stale(s, top-1)
	e.enter(s, top)
}

// lookOn reads until done is set or the check has run out of time.
func (e *env) lookOn(h *history, done *atomic.Bool) {
	s := e.open()
	for !done.Load() && e.ctx.Err() == nil {
		before := h.now()
		value, err := s.Read(e.ctx)
		if errors.Is(err, fs.ErrNotExist) && before == 0 {
			runtime.Gosched()
			continue
		}
		if err != nil {
			e.Errorf("read: %v", err)
			return
		}
		token, err := stamped(value)
		if err != nil || token < before {
			e.Errorf("read a value of token %d after %d was accepted (%v)", token, before, err)
			return
		}
		h.saw(token)
	}
}

// checkCounter lets writers enter, read, dawdle and write the next number, each time with a new
// token. Some are overtaken; every accepted write must count.
func checkCounter(e *env) {
	e.write(e.open(), 1, "0")
	var tokens, accepted atomic.Int64
	tokens.Store(1)
	together(e.guard.Writers, func(i int) {
		s := e.open()
		random := rand.New(rand.NewPCG(uint64(i), 11))
		for range e.guard.Rounds {
			accepted.Add(int64(e.increment(s, lockstep.Token(tokens.Add(1)), random.IntN(20))))
		}
	})
	// Without competition one is certainly accepted, so the count is meaningful.
	accepted.Add(int64(e.increment(e.open(), lockstep.Token(tokens.Add(1)), 0)))
	if accepted.Load() == 0 {
		e.Errorf("no increment was accepted")
	}
	e.holds(e.open(), fmt.Sprint(accepted.Load()))
}

// increment adds one and returns 1, or 0 when it was overtaken.
func (e *env) increment(s Store, token lockstep.Token, dawdle int) int {
	err := s.Enter(e.ctx, e.grant(token))
	if err == nil {
		n := e.countOrZero(s)
		for range dawdle {
			runtime.Gosched()
		}
		err = s.Write(e.ctx, e.grant(token), decimal(n+1))
	}
	if err != nil && !errors.Is(err, fence.ErrStale) {
		e.Errorf("increment with token %d: %v", token, err)
	}
	if err != nil {
		return 0
	}
	return 1
}

// countOrZero is count for other goroutines, which must not end the check.
func (e *env) countOrZero(s Store) int {
	text, err := s.Read(e.ctx)
	n := 0
	if err == nil {
		_, err = fmt.Sscan(string(text), &n)
	}
	if err != nil {
		e.Errorf("read the counter: %v", err)
	}
	return n
}
