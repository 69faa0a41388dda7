#!/usr/bin/env bash
# leader killed under load: longest gap <= 2 s in 18 of 20, never > 3.5 s; handed over: < 300 ms in 10 of 10
. "$(dirname "$0")/lib.sh"
cluster_start 5
# gap SIGNAL: the longest time without a grant, in ms, when SIGNAL is sent to the leader.
gap() {
  wait_members
  "$lockstep" bench --workload free --workers 8 --duration 7s -o json >"$work/bench.json" &
  local bench=$! lead
  sleep 2
  lead=$(leader)
  node_end "$1" "$lead"
  wait $bench || fail "bench failed: $(cat "$work/bench.json")"
  jq -e '.errors == 0' "$work/bench.json" >/dev/null || fail "clients saw errors: $(cat "$work/bench.json")"
  jq -e '.grants > 200' "$work/bench.json" >/dev/null || fail "void: too little load before the fault"
  node_start "$lead"
  measured=$(jq '.longest_gap_ms | ceil' "$work/bench.json")
}
kills=${KILLS:-20} handovers=${HANDOVERS:-10} within=0 all=()
for ((k = 0; k < kills; k++)); do
  gap KILL; all+=("$measured")
  [ "$measured" -le 2000 ] && within=$((within + 1))
  [ "$measured" -le 3500 ] || fail "gap of $measured ms"
done
say "killed: gaps in ms: ${all[*]}; $within of $kills within 2 s"
[ $((within * 20)) -ge $((kills * 18)) ] || fail "only $within of $kills within 2 s"
all=()
for ((k = 0; k < handovers; k++)); do
  gap TERM; all+=("$measured")
done
say "handed over: gaps in ms: ${all[*]}"
for g in "${all[@]}"; do [ "$g" -lt 300 ] || fail "hand-over took $g ms"; done
