#!/usr/bin/env bash
# a sixth node joins, an old one is removed, another's disk is wiped and the node replaced, all are restarted one by one,
# under load from 16 workers: no error, longest gap < 2 s; the wiped node refuses to start with its
# old flags
. "$(dirname "$0")/lib.sh"
cluster_start 5
wait_members
"$lockstep" bench --workers 16 --duration "${SECONDS_OF_LOAD:-60}" -o json >"$work/bench.json" 2>"$work/bench.log" &
bench=$!

peer() { echo "$host:$(($(client_port "$1") + 1))"; }
# node_join I: starts node I with what "member add" or "member replace" printed
node_join() {
  local i=$1 port
  port=$(client_port "$i")
  "$lockstep" server --name "n$i" --data-dir "$work/n$i" --listen "$host:$port" --peer-listen "$host:$((port + 1))" \
    --http-listen "$host:$((port + 2))" --join "$(jq -r .cluster_id "$work/added$i")" \
    --initial-cluster "$(jq -r .initial_cluster "$work/added$i")" >>"$work/n$i.log" 2>&1 &
  pids[$i]=$!
  disown "${pids[$i]}"
}
# gone I: waits until node I has ended by itself
gone() {
  local deadline=$((SECONDS + 20))
  while kill -0 "${pids[$1]}" 2>/dev/null; do
    [ $SECONDS -lt $deadline ] || fail "node $1 did not end"
    sleep 0.1
  done
  unset "pids[$1]"
}

"$lockstep" member add n6 "$(peer 6)" -o json >"$work/added6"
node_join 6
"$lockstep" member promote n6
"$lockstep" member remove n1
gone 1
grep -q "was removed" "$work/n1.log" || fail "the removed node does not say why it ended"
say "n6 joined, n1 was removed"

node_term 2
rm -rf "$work/n2"
node_start 2
gone 2
grep -q "member replace" "$work/n2.log" || fail "the wiped node does not say what to do"
"$lockstep" member replace n2 "$(peer 2)" -o json >"$work/added2"
rm -rf "$work/n2" # the refused start has created it again
node_join 2
"$lockstep" member promote n2
say "n2 was wiped, refused and replaced"

for i in 2 3 4 5 6; do
  node_term "$i"
  case $i in 2 | 6) node_join "$i" ;; *) node_start "$i" ;; esac
  wait_members
done
say "all were restarted"
kill -0 $bench 2>/dev/null || fail "the load ended too early: $(cat "$work/bench.log")"
wait $bench || fail "the load failed: $(cat "$work/bench.log")"
cat "$work/bench.json"
jq -e '.longest_gap_ms < 2000 and .errors == 0' "$work/bench.json" >/dev/null || fail "errors, or a gap of 2 s or more"
