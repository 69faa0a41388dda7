package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

const (
	// maxLine bounds a line. The line of an event with the longest name, metadata and reason, with
	// every byte escaped, is shorter.
	maxLine = 64 << 10
	// askTimeout bounds one question with its answer.
	askTimeout = time.Minute
)

// ErrNoLog is matched by the error of Config.Ask if the peer has no audit log, or does not know the
// question.
var ErrNoLog = errors.New("audit: the peer keeps no audit log")

// A reply is the result of asking one peer.
type reply struct {
	lines uint64 // number of lines that the file lacked
	first uint64 // number of the peer's first event at or after the start of the gap; 0: none
	later bool   // asking it again may give more
}

// fetch asks all peers, once each, for a gap until one of them gives lines. If none does, and none
// may later, the file says what is missing.
func (l *Log) fetch(ctx context.Context, g gap) {
	l.search.begin(l.log, g)
	later, next := false, g.to
	for _, peer := range l.inOrder() {
		r := l.ask(ctx, peer, g)
		if ctx.Err() != nil {
			return
		}
		if r.lines > 0 {
			l.search.found()
			l.giver = peer
			return
		}
		later = later || r.later
		if r.first > g.from {
			next = min(next, r.first)
		}
	}
	if l.search.nothing(time.Now(), later) {
		l.giveUp(gap{g.from, next})
	}
}

// inOrder returns the peers, starting with the one that last gave lines.
func (l *Log) inOrder() []uint64 {
	peers := slices.Clone(l.cfg.Peers())
	if i := slices.Index(peers, l.giver); i > 0 {
		peers = slices.Insert(slices.Delete(peers, i, i+1), 0, l.giver)
	}
	return peers
}

// ask asks one peer.
func (l *Log) ask(ctx context.Context, peer uint64, g gap) reply {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	content, err := l.cfg.Ask(ctx, peer, g.from, g.to)
	if err != nil {
		l.log.Debug("a peer was not asked for missing events", "err", err)
		return reply{later: !errors.Is(err, ErrNoLog)}
	}
	r, err := l.take(content, g)
	err = errors.Join(err, content.Close())
	switch {
	case errors.Is(err, errWrongLine):
		l.log.Warn("a peer's audit log is damaged", "peer", fmt.Sprintf("%016x", peer), "err", err)
	case err != nil:
		l.log.Debug("a peer's response for the audit log was cut off", "from", g.from, "lines", r.lines, "err", err)
	}
	return r
}

// errWrongLine is matched by the errors for lines that an intact log does not have.
var errWrongLine = errors.New("wrong line")

// take writes the lines of an answer. Complete and correct lines before an error are kept.
func (l *Log) take(content io.Reader, g gap) (r reply, err error) {
	lines := bufio.NewReaderSize(content, maxLine)
	line, err := lines.ReadSlice('\n')
	if err != nil {
		return reply{later: true}, err
	}
	var h head
	if err := json.Unmarshal(line, &h); err != nil || h.Audit != format {
		return reply{}, fmt.Errorf("%w: it starts with %.64q", errWrongLine, line)
	}
	if h.First != g.from {
		return reply{first: h.First, later: h.First == 0 && h.Last < g.from && !h.Waiting}, nil
	}
	for r.lines < g.to-g.from && err == nil {
		if line, err = lines.ReadSlice('\n'); err == nil {
			if err = l.copyLine(line, g.from+r.lines); err == nil {
				r.lines++
			}
		}
	}
	r.later = !errors.Is(err, errWrongLine)
	if errors.Is(err, io.EOF) && len(line) == 0 {
		err = nil
	}
	return r, err
}

// copyLine writes the line of the event want from a peer's log, unless it has arrived meanwhile.
func (l *Log) copyLine(line []byte, want uint64) error {
	if number, _ := eventNumber(line); number != want {
		return fmt.Errorf("%w: %.64q, want event %d", errWrongLine, line, want)
	}
	w := &l.writing
	w.Lock()
	defer w.Unlock()
	before := w.writer.Last()
	if err := w.writer.Copy(line); err != nil {
		return err
	}
	got := w.writer.Last() - before
	l.fetched.Add(got)
	l.wanted.Store(l.wanted.Load() - min(got, l.wanted.Load()))
	if w.writer.pending.Len() < writeBytes {
		return nil
	}
	err := l.writeLocked()
	l.complain(err)
	return err
}

// giveUp writes that events are missing, unless they have arrived meanwhile.
func (l *Log) giveUp(g gap) {
	l.writing.Lock()
	defer l.writing.Unlock()
	now, _ := l.advanceLocked()
	if now.from != g.from || now.empty() {
		return
	}
	g.to = min(g.to, now.to)
	l.writing.writer.Skip(g.to - 1)
	l.complain(l.writeLocked())
	l.log.Warn("events are missing in the audit log: no peer has them", "from", g.from, "to", g.to-1)
}
