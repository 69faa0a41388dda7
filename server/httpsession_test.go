package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// changesOf returns the states in the answer of a keepalive, by seq.
func changesOf(kept map[string]any) map[string]string {
	states := map[string]string{}
	list, _ := kept["changes"].([]any)
	for _, c := range list {
		claim := c.(map[string]any)
		states[claim["seq"].(string)] = claim["state"].(string)
	}
	return states
}

// TestAClientOfTheJSONAPILearnsOfARevocationHoweverLate does what docs/api.md tells clients in any
// language to do.
func TestAClientOfTheJSONAPILearnsOfARevocationHoweverLate(t *testing.T) {
	t.Parallel()
	c := newCurl(t, startAlone(t))
	a, proof := c.session()
	spec := func(name string) string { return `,"spec":{"names":["` + name + `"],"wait_ms":0}` }
	seq, token := claimOf(t, c.post(a+"/acquire", proof+spec("billing/nightly")+`,"nonce":"run-7"}`))
	revoke := `{"name":"billing/nightly","last_token":"` + token + `","by":"ops","reason":"it hangs"}`
	if r := c.post("/v1/revoke", revoke); r["revoked"] != float64(1) {
		t.Fatalf("revoked %v", r)
	}
	other := func(from, n int) {
		for i := range n {
			seq, token := claimOf(t, c.post(a+"/acquire", proof+spec(fmt.Sprint("other/", from+i))+`}`))
			c.post(a+"/release", proof+`,"seq":"`+seq+`","token":"`+token+`"}`)
		}
	}
	other(0, 70)
	kept := c.post(a+"/keepalive", proof+`,"seen":"0"}`)
	if states := changesOf(kept); states[seq] != "CLAIM_STATE_REVOKED" {
		t.Fatalf("after 70 other claims the keepalive says %v", kept)
	}
	code, gone := c.do(http.MethodPost, a+"/release", "application/json", proof+`,"seq":"`+seq+`","token":"`+token+`"}`)
	if code != 400 || gone["reason"] != "LOST" {
		t.Errorf("the release of what was revoked: %d %v", code, gone)
	}

	// The repeated revocation does not affect the next holder, and the repeated nonce does not take
	// the lock.
	b, bProof := c.session()
	c.post(b+"/acquire", bProof+spec("billing/nightly")+`}`)
	if r := c.post("/v1/revoke", revoke); r["revoked"] != float64(0) && r["revoked"] != nil {
		t.Errorf("the repeated revocation ended %v", r)
	}
	c.post(b+"/close", bProof+`}`)
	code, again := c.do(http.MethodPost, a+"/acquire", "application/json", proof+spec("billing/nightly")+`,"nonce":"run-7","seen":"0"}`)
	if code != 400 || again["reason"] != "REVOKED" {
		t.Errorf("the repeated nonce: %d %v", code, again)
	}

	// The client has handled it, and lets go of the nonce. Its earlier request arrives again.
	c.post(a+"/acquire", proof+spec("billing/daily")+`,"nonce":"run-8","seen":"1","floor":"72"}`)
	if states := changesOf(c.post(a+"/keepalive", proof+`,"seen":"0"}`)); len(states) != 0 {
		t.Errorf("what the client has seen is told again: %v", states)
	}
	code, late := c.do(http.MethodPost, a+"/acquire", "application/json", proof+spec("billing/nightly")+`,"nonce":"run-7","seen":"0"}`)
	if code != 400 || late["reason"] != "STALE_REQUEST" {
		t.Errorf("the nonce that was let go of: %d %v", code, late)
	}
	lock := c.get("/v1/locks/billing/nightly")["lock"].(map[string]any)
	if holders, _ := lock["holders"].([]any); len(holders) != 0 || !slices.Contains([]any{nil, "0"}, lock["holder_count"]) {
		t.Errorf("the lock is held again: %v", lock)
	}
}
