#!/usr/bin/env bash
# a scrape under load: every metric of the dashboard and the alerts exists, and changes as it should when a holder dies and the leader is killed
. "$(dirname "$0")/lib.sh"
cluster_start 3
cd "$work"

scrape() { # FILE: of all nodes that answer
  local i
  : >"$1"
  for ((i = 1; i <= nodes; i++)); do curl -s -m 2 "http://127.0.0.1:$(($(client_port "$i") + 2))/metrics" >>"$1" || true; done
}
# value HOW FILE METRIC: the sum or the maximum, over the nodes, of a metric with any labels
value() { awk -v how="$1" -v name="$3" 'index($0, name) == 1 && substr($0, length(name) + 1, 1) ~ /[ {]/ {if (how == "sum") v += $NF; else if ($NF > v) v = $NF} END {printf "%.0f\n", v}' "$2"; }
rises() { # HOW METRIC FROM TO: in the files
  local before after
  before=$(value "$1" "$3" "$2") after=$(value "$1" "$4" "$2")
  [ "$after" -gt "$before" ] || fail "$2 went from $before to $after"
  say "$2: $before, then $after"
}

"$lockstep" bench --workers 16 --duration 14s -o json >bench.json & load=$!
sleep 2
"$lockstep" run --ttl 2s seen/dead -- sleep 1000 2>dead.err & dead=$!
until [ "$("$lockstep" show seen/dead -o json | jq '.holders | length')" = 1 ]; do sleep 0.1; done
"$lockstep" run --ttl 10s seen/dead -- true & waiter=$!
until [ "$("$lockstep" show seen/dead -o json | jq .waiter_count)" = 1 ]; do sleep 0.1; done
"$lockstep" run -n seen/dead -- true 2>/dev/null && fail "the lock was not busy"
scrape begin
[ "$(value sum begin lockstep_failed_tries_total)" -ge 1 ] || fail "the busy try was not counted"
[ "$(value max begin lockstep_waiters)" -ge 1 ] || fail "the waiter was not counted"
for name in $(grep -ohE 'lockstep_[a-z_]+' "$top/deploy/grafana/lockstep.json" "$top/deploy/prometheus/alerts.yml" | sort -u); do
  # A reason gets its own line only after it has occurred.
  [ "$name" = lockstep_rejected_requests_total ] || grep -qE "^${name}(_bucket)?[ {]" begin || fail "$name does not exist"
done
{ kill -9 $dead; wait $dead; } 2>/dev/null || true
wait $waiter || fail "the waiter was not granted"

scrape died
rises max lockstep_expired_total begin died
rises max 'lockstep_lost_grants_total{reason="expired"}' begin died
rises max lockstep_wait_seconds_count begin died
rises max lockstep_grants_total begin died
rises sum lockstep_grant_seconds_count begin died
rises sum lockstep_sync_seconds_count begin died
[ "$(value sum died lockstep_expired_unreaped)" = 0 ] || fail "expired and not reaped"

lead=$(leader)
node_kill "$lead"
sleep 4
scrape killed
rises max lockstep_leader_changes_total died killed
rises max lockstep_term died killed
[ "$(value sum killed lockstep_serving)" = 1 ] || fail "$(value sum killed lockstep_serving) nodes serve"
for ((i = 1; i <= nodes; i++)); do
  [ "$i" = "$lead" ] || curl -s "http://127.0.0.1:$(($(client_port "$i") + 2))/readyz?verbose" | grep -q '^ready' || fail "n$i is not ready although two of three are up"
done
wait $load || fail "bench: $(cat bench.json)"
# Without a quorum: not ready, but alive.
for ((i = 1; i <= nodes; i++)); do [ "$i" = "$lead" ] || { last=$i; }; done
for ((i = 1; i <= nodes; i++)); do [ "$i" = "$lead" ] || [ "$i" = "$last" ] || node_kill "$i"; done
sleep 3
http=http://127.0.0.1:$(($(client_port "$last") + 2))
[ "$(curl -s -o /dev/null -w '%{http_code}' "$http/readyz")" = 503 ] || fail "a node without a quorum says that it is ready"
[ "$(curl -s -o /dev/null -w '%{http_code}' "$http/livez")" = 200 ] || fail "a node without a quorum says that it is dead"
say "without a quorum: not ready, alive"
