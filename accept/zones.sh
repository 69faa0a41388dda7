#!/usr/bin/env bash
# zones: status, member list and metrics show where each node is, a zone with a majority causes a warning, and the leader moves to the preferred zone
. "$(dirname "$0")/lib.sh"
nodes=5
zones=([1]=a [2]=a [3]=b [4]=b [5]=c)
start() { # PREFERRED
  local i
  for i in 1 2 3 4 5; do server_flags="--zone ${zones[$i]} --leader-zone $1" node_start "$i"; done
  export LOCKSTEP_ENDPOINTS
  LOCKSTEP_ENDPOINTS=$(endpoints)
  wait_serving
  wait_members
}
leader_zone() { "$lockstep" status -o json | jq -r '.leader as $l | .members[] | select(.name == $l) | .zone'; }
all_down() { local i; for i in 1 2 3 4 5; do node_term "$i"; done; }

start b
# A node knows the zones of the nodes it has met; the first one to answer may have met only the
# leader.
known() { "$lockstep" member list -o json | jq -r '[.[] | .name + "=" + .zone] | sort | join(" ")'; }
metric() { curl -s "http://127.0.0.1:$(($(client_port 1) + 3))/metrics" | grep '^lockstep_member_info'; }
deadline=$((SECONDS + 20))
until [ "$(known)" = "n1=a n2=a n3=b n4=b n5=c" ] && metric | grep -q '{member="n5",votes="true",zone="c"} 1'; do
  [ $SECONDS -lt $deadline ] || fail "member list shows $(known), the metric $(metric)"
  sleep 0.3
done
"$lockstep" status | grep -q 'losing that zone would stop the cluster' && fail "status warns of a zone that has no majority"
say "5 nodes in 3 zones: shown by member list and metrics"

"$lockstep" run --ttl 30 zones/held -- sleep 300 & holder=$!
on_exit+=("kill $holder 2>/dev/null")
"$lockstep" member lead n1 >/dev/null || fail "n1 does not take the leadership"
[ "$(leader_zone)" = a ] || fail "n1 does not lead"
begin=$SECONDS
until [ "$(leader_zone)" = b ]; do
  [ $((SECONDS - begin)) -lt 90 ] || fail "the leader is in zone $(leader_zone) after 90 s"
  sleep 0.5
done
kill -0 $holder || fail "the lock that was held is lost"
[ $((SECONDS - begin)) -ge 20 ] || fail "n1 was left after $((SECONDS - begin)) s, want about 30"
say "the leader is in zone b after $((SECONDS - begin)) s, and the lock is held on"

all_down
zones=([1]=a [2]=a [3]=a [4]=b [5]=c)
start a
"$lockstep" status | grep -q '^3 of 5 voters are in zone a: losing that zone would stop the cluster' || fail "status does not warn: $("$lockstep" status)"
grep -q 'the loss of one zone would stop the cluster' "$work"/n*.log || fail "no log warns"
say "3 of 5 voters in one zone: status and the leader's log warn"
