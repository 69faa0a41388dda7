package check

import "github.com/lockstep-dev/lockstep/server/command"

// A digester is a running FNV-1a hash over words and texts.
type digester uint64

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func (d *digester) word(v uint64) {
	h := uint64(*d)
	for range 8 {
		h = (h ^ v&0xff) * fnvPrime
		v >>= 8
	}
	*d = digester(h)
}

func (d *digester) text(s string) {
	d.word(uint64(len(s)))
	h := uint64(*d)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	*d = digester(h)
}

func (d *digester) claim(id command.ClaimID) {
	d.text(string(id.Session[:]))
	d.word(id.Seq)
}

func (d *digester) status(c *command.ClaimStatus) {
	d.word(c.Seq)
	d.word(uint64(c.State))
	d.word(uint64(c.Token))
	d.word(uint64(c.Position))
	d.word(c.Change)
	d.word(uint64(len(c.Blockers)))
}

// outputDigest returns a hash of what applying one entry produced.
func outputDigest(o *command.Output) uint64 {
	d := digester(fnvOffset)
	for i := range o.Results {
		r := &o.Results[i]
		d.word(uint64(r.Code))
		d.text(string(r.Session[:]))
		d.status(&r.Claim)
		d.word(uint64(r.Revoked))
	}
	for i := range o.Changes {
		c := &o.Changes[i]
		d.text(string(c.Session[:]))
		d.word(c.Number)
		d.status(&c.Claim)
		d.word(uint64(c.Ended))
	}
	for i := range o.Timers {
		t := &o.Timers[i]
		d.word(uint64(t.Kind))
		d.claim(t.Claim)
		d.word(uint64(t.Span))
	}
	for i := range o.Events {
		e := &o.Events[i]
		d.word(e.Number)
		d.word(uint64(e.Kind))
		d.text(e.Name)
		d.claim(e.Claim)
		d.word(uint64(e.Token))
	}
	return uint64(d)
}
