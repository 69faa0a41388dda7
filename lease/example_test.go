package lease_test

import (
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep/lease"
)

// The lease counts from when the renewal was sent, minus a margin for clocks that run at different
// rates. When the answer arrived does not matter.
func ExampleState() {
	st := lease.New(10 * time.Second)

	attempt := st.Sending(2 * time.Second)
	st.Confirm(5*time.Second, attempt)

	fmt.Println(st.ValidUntil())
	fmt.Println(st.Valid(11*time.Second), st.Valid(12*time.Second))
	// Output:
	// 11.8s
	// true false
}

// Waits double, and each is drawn from the upper half below its ceiling.
func ExampleBackoff() {
	b := lease.Backoff{Base: 100 * time.Millisecond, Max: time.Second, Rand: func() float64 { return 0.5 }}
	for range 5 {
		fmt.Println(b.Next())
	}
	// Output:
	// 75ms
	// 150ms
	// 300ms
	// 600ms
	// 750ms
}
