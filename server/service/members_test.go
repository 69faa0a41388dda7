package service_test

import (
	"strings"
	"testing"
	"time"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
)

func TestTheMembershipIsChangedByCallsThatSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	ctx, admin := patient(t), pb.NewAdminServiceClient(dial(t, m.address))
	for _, r := range []*pb.MemberAddRequest{
		{Name: "", PeerAddress: "127.0.0.1:1"},
		{Name: "a b", PeerAddress: "127.0.0.1:1"},
		{Name: strings.Repeat("n", 64), PeerAddress: "127.0.0.1:1"},
		{Name: "x", PeerAddress: "127.0.0.1"},
		{Name: "x", PeerAddress: ":7401"},
		{Name: "x", PeerAddress: "127.0.0.1:0"},
		{Name: m.Status().Name, PeerAddress: "127.0.0.1:1"},
	} {
		_, err := admin.MemberAdd(ctx, r)
		wantReason(t, err, pb.Reason_REASON_INVALID_ARGUMENT)
	}
	added, err := admin.MemberAdd(ctx, &pb.MemberAddRequest{Name: "x", PeerAddress: "127.0.0.1:1"})
	if err != nil || added.GetClusterId() != m.Status().ClusterID || !strings.HasPrefix(added.GetInitialCluster(), "x=127.0.0.1:1,") {
		t.Fatalf("added %v, %v", added, err)
	}
	_, err = admin.MemberPromote(ctx, &pb.MemberPromoteRequest{Name: "x"})
	wantReason(t, err, pb.Reason_REASON_BUSY)
	_, err = admin.MemberPromote(ctx, &pb.MemberPromoteRequest{Name: "y"})
	wantReason(t, err, pb.Reason_REASON_INVALID_ARGUMENT)
	_, err = admin.MemberRemove(ctx, &pb.MemberRemoveRequest{Name: m.Status().Name, Force: true})
	wantReason(t, err, pb.Reason_REASON_INVALID_ARGUMENT)
	for _, to := range []string{"", "x", "y"} {
		_, err = admin.HandOver(ctx, &pb.HandOverRequest{To: to})
		wantReason(t, err, pb.Reason_REASON_INVALID_ARGUMENT)
	}
	if _, err := admin.MemberRemove(ctx, &pb.MemberRemoveRequest{Name: "x"}); err != nil {
		t.Error(err)
	}
	if _, err := admin.MemberRemove(ctx, &pb.MemberRemoveRequest{Name: "x"}); err != nil {
		t.Errorf("a retry: %v", err)
	}
}

func TestTheFeatureLevelIsToldAndDoesNotFall(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	ctx, admin := patient(t), pb.NewAdminServiceClient(dial(t, m.address))
	// A new cluster reaches its level by itself.
	for m.Status().Replica.GrantsHeld != "" || m.Status().Level == 0 {
		select {
		case <-ctx.Done():
			t.Fatal("the cluster does not begin")
		case <-time.After(time.Millisecond):
		}
	}
	for _, r := range []*pb.UpgradeRequest{{}, {Check: true}, {ToLevel: command.FeatureLevel}} {
		got, err := admin.Upgrade(ctx, r)
		if err != nil || got.GetFromLevel() != command.FeatureLevel || got.GetToLevel() != command.FeatureLevel || len(got.GetMembers()) != 1 {
			t.Errorf("%v: %v, %v", r, got, err)
		}
	}
	_, err := admin.Upgrade(ctx, &pb.UpgradeRequest{ToLevel: 1})
	wantReason(t, err, pb.Reason_REASON_INVALID_ARGUMENT)
	_, err = admin.Upgrade(ctx, &pb.UpgradeRequest{ToLevel: command.FeatureLevel + 1})
	wantReason(t, err, pb.Reason_REASON_BUSY)
	st, err := admin.Status(ctx, &pb.StatusRequest{})
	if err != nil || st.GetFeatureLevel() != command.FeatureLevel || st.GetMembers()[0].GetFeatureLevel() != command.FeatureLevel {
		t.Errorf("status %v, %v", st, err)
	}
}
