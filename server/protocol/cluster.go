package protocol

import (
	"fmt"
	"regexp"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// ClusterKey is the metadata key of the cluster id: in an answer, the id of the node's cluster; in
// a request, the id of the cluster that it is meant for. Over HTTP it is a header.
const ClusterKey = "lockstep-cluster"

var clusterID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// IsClusterID reports whether s has the form of a cluster id: 32 lower-case hexadecimal digits.
func IsClusterID(s string) bool { return clusterID.MatchString(s) }

// WrongCluster returns the error for a request that is meant for a cluster other than this node's.
func WrongCluster(wanted, own string) *pb.Error {
	return &pb.Error{
		Reason:  pb.Reason_REASON_WRONG_CLUSTER,
		Field:   ClusterKey,
		Message: fmt.Sprintf("this node belongs to cluster %s, but the request is for cluster %.64q: nothing was done", own, wanted),
	}
}
