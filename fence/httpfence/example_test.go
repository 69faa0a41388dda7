package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fence/httpfence"
	"github.com/lockstep-dev/lockstep/memlock"
)

// A web service that refuses late writers, and two clients of it. A takes the lock and freezes
// beyond its lease; B takes over; A's late request is answered with status 412.
func Example() {
	// The server.
	guard, err := httpfence.New(httpfence.Config{Guard: fence.NewMemory(0)}) // or any other guard
	if err != nil {
		log.Fatal(err)
	}
	var stock string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			body, _ := io.ReadAll(r.Body)
			stock = string(body)
		}
		fmt.Fprint(w, stock)
	})
	server := httptest.NewServer(guard.Wrap(handler))
	defer server.Close()

	// The clients.
	ctx := context.Background()
	space := memlock.NewSpace() // stands in for the lock service
	a, b := space.Locker(), space.Locker()
	source, err := fence.For(a, "prod", "stock/4711")
	if err != nil {
		log.Fatal(err)
	}
	lockA, _ := a.Acquire(ctx, "stock/4711")
	put(source.Grant(lockA.Token()), server.URL+"/stock/4711", "10 pieces")
	a.Expire() // A freezes

	lockB, _ := b.Acquire(ctx, "stock/4711")
	transport, err := httpfence.NewTransport(nil, source, lockB)
	if err != nil {
		log.Fatal(err)
	}
	web := &http.Client{Transport: transport}
	resp, err := web.Get(server.URL + "/stock/4711") // reads, and so enters
	if err != nil {
		log.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Printf("B reads: %s, %s\n", resp.Status, text)

	put(source.Grant(lockA.Token()), server.URL+"/stock/4711", "9 pieces") // A wakes
	fmt.Println("stock:", stock)
	// Output:
	// 200 OK 10 pieces
	// B reads: 200 OK, 10 pieces
	// 412 Precondition Failed {"type":"urn:lockstep:fence:stale","title":"The token is older than one seen here","status":412,"detail":"fence: token is older than one seen here: token 1 of lock stock/4711, seen 2: a later holder is at work, stop and do not retry","token":"1","lock":"stock/4711","backend":"memory:prod","seen":"2","seen_lock":"stock/4711","seen_backend":"memory:prod"}
	// stock: 10 pieces
}

// put is what a client in any language does.
func put(g fence.Grant, url, body string) {
	r, _ := http.NewRequest(http.MethodPut, url, strings.NewReader(body))
	r.Header.Set("Lockstep-Token", fmt.Sprint(g.Token))
	r.Header.Set("Lockstep-Lock", g.Lock)
	r.Header.Set("Lockstep-Backend", g.Backend)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.Status, strings.TrimSpace(string(text)))
}

// Refusal turns a response into the error that the guard returned.
func ExampleRefusal() {
	guard, err := httpfence.New(httpfence.Config{Guard: fence.NewMemory(0)})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(guard.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer server.Close()

	for _, token := range []lockstep.Token{8, 7} {
		r, _ := http.NewRequest(http.MethodPut, server.URL, nil)
		httpfence.SetGrant(r.Header, fence.Grant{Backend: "native:prod", Lock: "stock", Token: token})
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		err = httpfence.Refusal(resp)
		resp.Body.Close()
		fmt.Println(token, errors.Is(err, fence.ErrStale))
	}
	// Output:
	// 8 false
	// 7 true
}
