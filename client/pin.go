package client

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/lockstep-dev/lockstep"
)

// ErrTwoClusters means that an endpoint, or a node that another named as the leader, belongs to a
// different cluster than this client. That node did nothing, and no lock came from it. Repeating
// the call does not help until the endpoints are corrected. The error is a [*ClusterError].
var ErrTwoClusters = errors.New("lockstep: endpoints of two clusters")

// A ClusterError names two clusters and the endpoints that answered for them. errors.Is finds
// [ErrTwoClusters] in it, and [lockstep.ErrInvalid], because the configuration is wrong.
type ClusterError struct {
	// Endpoint and Cluster are those that differ from the wanted cluster. Endpoint is "the handle"
	// if a handle's cluster is not [Config.Cluster].
	Endpoint, Cluster string
	Want              string // the wanted cluster
	WantFrom          string // the endpoint that answered for it; empty: it came from [Config.Cluster] or a handle
}

func (e *ClusterError) Error() string {
	if e.WantFrom == "" {
		return fmt.Sprintf("lockstep: wrong cluster: %s belongs to cluster %s, want %s: give endpoints of that cluster; if a restore replaced it, its locks are lost",
			e.Endpoint, e.Cluster, e.Want)
	}
	return fmt.Sprintf("%v: %s belongs to cluster %s, and %s to cluster %s: give the endpoints of one cluster", ErrTwoClusters, e.WantFrom, e.Want, e.Endpoint, e.Cluster)
}

// Is makes errors.Is(err, ErrTwoClusters) and errors.Is(err, lockstep.ErrInvalid) hold.
func (e *ClusterError) Is(target error) bool {
	return target == ErrTwoClusters || target == lockstep.ErrInvalid
}

// clusterID is the form of a cluster's id.
var clusterID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// An answer is what an endpoint reported about its cluster.
type answer struct{ endpoint, cluster string }

// A pin is the cluster that a client belongs to. The first answer sets it, unless the caller did.
type pin struct {
	cluster string // empty: not yet known
	from    string // the endpoint that reported it; empty: the caller set it, and it never changes
}

func (p pin) fixed() bool { return p.cluster != "" && p.from == "" }

// hear records an answer and returns what is wrong with it.
func (p *pin) hear(a answer) *ClusterError {
	switch {
	case a.cluster == "" || a.cluster == p.cluster:
		return nil
	case p.cluster == "":
		*p = pin{a.cluster, a.endpoint}
		return nil
	}
	return p.clash(a)
}

func (p pin) clash(a answer) *ClusterError {
	return &ClusterError{Endpoint: a.endpoint, Cluster: a.cluster, Want: p.cluster, WantFrom: p.from}
}

// A verdict is the combined result of several endpoints' answers.
type verdict int

const (
	agreed   verdict = iota // none answered for another cluster, and a majority answered
	few                     // none answered for another cluster, but too few have answered to be sure
	clashing                // the endpoints belong to two clusters
	replaced                // another cluster has replaced this one
	unsure                  // another cluster may have replaced it: too few have answered
)

// judge interprets the answers of n endpoints; one without a cluster is from a node that does not
// report it. Another cluster has replaced this one if a majority of the endpoints answer for it and
// none for this one or a third. For any verdict other than agreed and few, the error names two that
// differ.
func (p pin) judge(all []answer, n int) (verdict, *ClusterError) {
	answers := slices.DeleteFunc(slices.Clone(all), func(a answer) bool { return a.cluster == "" })
	i := slices.IndexFunc(answers, func(a answer) bool { return a.cluster != p.cluster })
	switch {
	case i < 0 && 2*len(all) > n:
		return agreed, nil
	case i < 0:
		return few, nil
	}
	other := answers[i]
	if p.fixed() {
		return clashing, p.clash(other)
	}
	for _, a := range answers {
		if a.cluster != other.cluster {
			return clashing, pin{a.cluster, a.endpoint}.clash(other)
		}
	}
	if 2*len(answers) > n {
		return replaced, p.clash(other)
	}
	return unsure, p.clash(other)
}
