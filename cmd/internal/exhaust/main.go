// Command exhaust puts a cluster under the loads that its limits guard against, and measures their
// effect on other clients. accept/exhaustion.sh runs it; it is not part of the program.
//
//	exhaust grants --endpoints LIST --rate 50 --for 10s
//		takes and releases locks at that rate; prints the latencies as JSON
//	exhaust connections --number N [--from IP] [--busy] ADDR
//		opens N connections and keeps them until SIGTERM; busy: with a call in progress on each
//	exhaust watches --number N [--from IP] URL
//		opens GET URL N times and reads nothing
//	exhaust headers --number N --bytes B ADDR
//		opens N calls with B bytes of headers; prints how many were refused
//	exhaust calls --number N [--deaf] [--from IP] ADDR
//		keeps N History calls in progress on one connection; deaf: begins N ListLocks calls and
//		blocks their responses
//	exhaust sessions --number N [--from IP] ADDR
//		opens up to N sessions, then keeps trying to open more
//	exhaust claims --number N [--bytes B] [--from IP] ADDR
//		takes up to N locks, each with B bytes of names, then keeps trying to take more
//	exhaust streams --number N [--from IP] ADDR
//		opens up to N gRPC watches, 16 on each connection
//	exhaust backups --number N [--from IP] ADDR
//		requests N backups at once and reads none of them
//
// Commands that open things print "ready OPENED", the number opened, after the last attempt.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// options are the flags of all commands.
type options struct {
	number    int
	bytes     int
	from      string
	busy      bool
	deaf      bool
	endpoints string
	rate      int
	duration  time.Duration

	mu struct {
		sync.Mutex
		kept []net.Conn
	}
}

// commands maps each command to its function, which returns when it has finished or ctx is done.
var commands = map[string]func(ctx context.Context, o *options, target string) error{
	"grants":      grants,
	"connections": connections,
	"watches":     watches,
	"headers":     headers,
	"calls":       calls,
	"sessions":    sessions,
	"claims":      claims,
	"streams":     streams,
	"backups":     backups,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "exhaust:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || commands[args[0]] == nil {
		return fmt.Errorf("the first argument must be one of: %s", strings.Join(slices.Sorted(maps.Keys(commands)), ", "))
	}
	var o options
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.IntVar(&o.number, "number", 1, "how many to open")
	flags.IntVar(&o.bytes, "bytes", 0, "bytes of headers or names")
	flags.StringVar(&o.from, "from", "", "local IP address to connect from")
	flags.BoolVar(&o.busy, "busy", false, "keep a call in progress on each connection")
	flags.BoolVar(&o.deaf, "deaf", false, "set the flow-control window to 0")
	flags.StringVar(&o.endpoints, "endpoints", "", "addresses of the nodes, separated by commas")
	flags.IntVar(&o.rate, "rate", 50, "grants per second")
	flags.DurationVar(&o.duration, "for", 10*time.Second, "how long to run")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	return commands[args[0]](ctx, &o, flags.Arg(0))
}

// dial connects, from o.from if that is set, and keeps a reference to the connection: the runtime
// closes connections that nothing refers to.
func (o *options) dial(ctx context.Context, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: 2 * time.Second}
	if o.from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(o.from)}
	}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.kept = append(o.mu.kept, c)
	return c, nil
}

// ready prints how many things were opened, and waits until ctx is done.
func ready(ctx context.Context, opened int) error {
	fmt.Println("ready", opened)
	<-ctx.Done()
	return nil
}
