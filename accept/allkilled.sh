#!/usr/bin/env bash
# all five nodes killed at once under load and restarted: nothing acknowledged is lost, tokens still increase
. "$(dirname "$0")/lib.sh"
cluster_start 5
cd "$work"
rounds=${ROUNDS:-3}
for ((r = 1; r <= rounds; r++)); do
  # Twenty holders whose grants were acknowledged, and a load that is interrupted.
  holders=()
  for i in $(seq 20); do
    "$lockstep" run --ttl 60s "held/$r/$i" -- sh -c "echo \$LOCKSTEP_TOKEN > held-$r-$i; sleep 1000" 2>"held-$r-$i.err" &
    holders+=($!)
  done
  for i in $(seq 20); do until [ -s "held-$r-$i" ]; do sleep 0.02; done; done
  "$lockstep" bench --workload free --workers 16 --duration 12s -o json >"bench-$r.json" & load=$!
  sleep 3
  kill -9 "${pids[@]}"; for i in 1 2 3 4 5; do while kill -0 "${pids[$i]}" 2>/dev/null; do sleep 0.01; done; done
  say "round $r: all nodes killed"
  for i in 1 2 3 4 5; do node_start "$i"; done
  wait_serving
  highest=$(cat held-"$r"-? held-"$r"-?? | sort -n | tail -1)
  for i in $(seq 20); do
    token=$("$lockstep" show "held/$r/$i" -o json | jq '.holders[0].token')
    [ "$token" = "$(cat "held-$r-$i")" ] || fail "held/$r/$i was granted with token $(cat "held-$r-$i"), now has $token"
  done
  fresh=$("$lockstep" run "fresh/$r" -- sh -c 'echo $LOCKSTEP_TOKEN')
  [ "$fresh" -gt "$highest" ] || fail "token $fresh after $highest"
  wait $load || fail "bench: $(cat "bench-$r.json")"
  jq -e '.grants > 200 and .errors == 0 and .highest_token > 0' "bench-$r.json" >/dev/null || fail "void or errors: $(cat "bench-$r.json")"
  jq -e '.token_regressions == 0' "bench-$r.json" >/dev/null || fail "a token went back: $(cat "bench-$r.json")"
  kill -TERM "${holders[@]}"; wait "${holders[@]}" || true
  say "round $r: 20 of 20 locks still held under their tokens, the next token is larger ($fresh > $highest), load $(jq -c '{grants,errors,longest_gap_ms}' "bench-$r.json")"
done
