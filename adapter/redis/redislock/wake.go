package redislock

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep/lease/locker"
)

const (
	// maxChannels bounds the names for which one Locker receives releases at the same time; waiters
	// for further names only poll.
	maxChannels = 1024
	// linger is how long a channel, and finally the subscription, outlives its last waiter: between
	// two tries a channel has none.
	linger = 2 * time.Second
	// subscribePatience bounds the sending of one SUBSCRIBE.
	subscribePatience = 2 * time.Second
)

// A hub wakes waiters. It has one subscription with one goroutine while there are waiters, and none
// otherwise. Waiters find what it misses by polling, so nothing depends on it.
type hub struct {
	rdb     redis.UniversalClient
	changed chan struct{} // receives a value when there is a new channel
	stop    chan struct{} // closed by close

	mu struct {
		sync.Mutex
		channels map[string]*channel
		stopped  chan struct{} // closed when the goroutine has ended; nil: there was none yet
		runs     bool
		closed   bool // once set, no goroutine is started
	}
}

// A channel is the channel of one lock.
type channel struct {
	waiters    []chan struct{} // in order of arrival; each has room for one wake-up
	missed     bool            // a release came while no one waited: the next waiter does not wait
	subscribed bool            // used only by the goroutine
	idleSince  time.Time       // when the last waiter left
}

// hears reports whether this kind of client can subscribe to what any of its servers publishes.
func hears(rdb redis.UniversalClient) bool {
	switch rdb.(type) {
	case *redis.Client, *redis.ClusterClient:
		return true
	}
	return false
}

func newHub(rdb redis.UniversalClient) *hub {
	h := &hub{rdb: rdb, changed: make(chan struct{}, 1), stop: make(chan struct{})}
	h.mu.channels = map[string]*channel{}
	h.mu.closed = !hears(rdb)
	return h
}

// Wait implements [locker.Waker].
func (b *backend) Wait(ctx context.Context, c *locker.Claim, d time.Duration) {
	name := b.keys(c.Names[0]).record
	woken, others := b.hub.join(name)
	defer b.hub.leave(name, woken)
	timer := time.NewTimer(crowded(d, others))
	defer timer.Stop()
	select {
	case <-woken:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// crowded makes claims of one Locker that wait for the same lock poll less often, so that together
// they poll about as often as twenty would. It stays well below the time without an answer after
// which an Acquire gives up.
func crowded(d time.Duration, others int) time.Duration {
	const few, longest = 20, 2 * time.Second
	if others < few {
		return d
	}
	if d *= time.Duration(1 + others/few); d <= longest {
		return d
	}
	return longest/2 + rand.N(longest/2)
}

// join adds a waiter and returns how many there were. A nil channel means that it will not be
// woken.
func (h *hub) join(name string) (woken chan struct{}, others int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.channelLocked(name)
	if c == nil {
		return nil, 0
	}
	woken, others = make(chan struct{}, 1), len(c.waiters)
	if c.missed {
		c.missed = false
		woken <- struct{}{}
		return woken, others
	}
	c.waiters = append(c.waiters, woken)
	return woken, others
}

// channelLocked finds or creates the channel of a name, with the goroutine that serves it. Nil: the
// limit is reached.
func (h *hub) channelLocked(name string) *channel {
	if c := h.mu.channels[name]; c != nil || h.mu.closed || len(h.mu.channels) >= maxChannels {
		return c
	}
	c := &channel{}
	h.mu.channels[name] = c
	if !h.mu.runs {
		h.mu.runs, h.mu.stopped = true, make(chan struct{})
		go h.run(h.mu.stopped)
	}
	select {
	case h.changed <- struct{}{}:
	default: // the goroutine will see this one too
	}
	return c
}

// leave removes a waiter. A wake-up that it did not use goes to the next.
func (h *hub) leave(name string, woken chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.mu.channels[name]
	if c == nil || woken == nil {
		return
	}
	if i := slices.Index(c.waiters, woken); i >= 0 {
		c.waiters = slices.Delete(c.waiters, i, i+1)
	} else if len(woken) > 0 {
		c.wakeOne()
	}
	c.idleSince = time.Now()
}

// wakeOne wakes the waiter that has waited longest. One is enough: only one can have the lock.
func (c *channel) wakeOne() {
	if len(c.waiters) == 0 {
		c.missed = true
		return
	}
	c.waiters[0] <- struct{}{}
	c.waiters = c.waiters[1:]
}

// run serves the channels until there are none or the hub is closed.
func (h *hub) run(stopped chan struct{}) {
	defer close(stopped)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sub := h.rdb.Subscribe(ctx) // connects with the first channel, and reconnects by itself
	defer sub.Close()
	messages := sub.Channel()
	tick := time.NewTicker(linger)
	defer tick.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-h.changed:
			h.subscribe(ctx, sub)
		case m, ok := <-messages:
			if !ok { // the user has closed the client
				h.end()
				return
			}
			h.released(m.Channel)
		case now := <-tick.C:
			if h.tidy(ctx, sub, now) {
				return
			}
		}
	}
}

// subscribe subscribes to the new channels. An error needs no handling here: the subscription
// resubscribes when it reconnects.
func (h *hub) subscribe(ctx context.Context, sub *redis.PubSub) {
	var fresh []string
	h.mu.Lock()
	for name, c := range h.mu.channels {
		if !c.subscribed {
			c.subscribed = true
			fresh = append(fresh, name)
		}
	}
	h.mu.Unlock()
	if len(fresh) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, subscribePatience)
	defer cancel()
	sub.Subscribe(ctx, fresh...)
}

func (h *hub) released(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.mu.channels[name]; c != nil {
		c.wakeOne()
	}
}

// tidy drops the channels that no one has waited for. It reports whether that was the last one, in
// which case the goroutine ends.
func (h *hub) tidy(ctx context.Context, sub *redis.PubSub, now time.Time) (last bool) {
	var idle []string
	h.mu.Lock()
	for name, c := range h.mu.channels {
		if len(c.waiters) == 0 && now.Sub(c.idleSince) > linger {
			delete(h.mu.channels, name)
			idle = append(idle, name)
		}
	}
	last = len(h.mu.channels) == 0
	h.mu.runs = !last
	h.mu.Unlock()
	if !last && len(idle) > 0 {
		ctx, cancel := context.WithTimeout(ctx, subscribePatience)
		defer cancel()
		sub.Unsubscribe(ctx, idle...)
	}
	return last
}

// end makes all waiters poll from now on.
func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.closed, h.mu.runs = true, false
	clear(h.mu.channels)
}

// close stops the goroutine and waits for it, until ctx is done.
func (h *hub) close(ctx context.Context) {
	h.mu.Lock()
	h.mu.closed = true
	stopped := h.mu.stopped
	h.mu.Unlock()
	close(h.stop)
	if stopped == nil {
		return
	}
	select {
	case <-stopped:
	case <-ctx.Done():
	}
}
