#!/usr/bin/env bash
# a restored cluster with 1,000 waiting clients: no new connections and no log entries while it waits, all granted soon afterwards
BASE_PORT=${BASE_PORT:-25400}
. "$(dirname "$0")/lib.sh"
cluster_start 3
cd "$work"
"$lockstep" snapshot save backup
for i in 1 2 3; do node_kill "$i"; rm -rf "$work/n$i"; done
for i in 1 2 3; do
  "$lockstep" snapshot restore backup --name "n$i" --data-dir "$work/n$i" --initial-cluster "$(initial_cluster)" --longest-ttl "${WAIT:-40s}" >/dev/null
done
for i in 1 2 3; do node_start "$i"; done
until [ "$(leader)" != 0 ]; do sleep 0.1; done

status() { "$lockstep" status -o json; }
applied() { status | jq .applied_index; }
held_ms() { status | jq .grants_held_ms; }
ports=$(for i in 1 2 3; do printf '%s|' "$(client_port "$i")"; done)
connections() { ss -tnH state established | awk '{print $3, $4}' | grep -E ":(${ports%|}) " | sort; }
cpu() { local i sum=0; for i in 1 2 3; do sum=$((sum + $(awk '{print $14 + $15}' "/proc/$(node_pid "$i")/stat"))); done; echo "$sum"; } # ticks of 10 ms

export LOCKSTEP_TEST_STORM=$LOCKSTEP_ENDPOINTS LOCKSTEP_TEST_STORM_WAITING=$work/waiting
(go_tests TestAThousandWaiters ./sim/conformance -timeout 5m) & crowd=$!
runs=()
for i in 1 2 3; do "$lockstep" run -w 120 "storm/run$i" -- true & runs+=($!); done
deadline=$((SECONDS + 120))
until [ -e waiting ]; do
  kill -0 $crowd 2>/dev/null || fail "the waiting clients ended"
  [ $SECONDS -lt $deadline ] || fail "1,000 clients have no sessions after 120 s"
  sleep 0.2
done
left=$(held_ms)
[ "$left" -gt 12000 ] || fail "only $left ms of the wait are left: give more with WAIT=90s"
curl -s "http://127.0.0.1:$(($(client_port 1) + 2))/readyz?verbose" | grep -q '^\[-\] grants: nothing is granted.*s left' || fail "/readyz does not say that grants are held back"
sleep 1
connections >before; first=$(applied); used=$(cpu)
sleep 8
connections >after; entries=$(($(applied) - first)); used=$(($(cpu) - used))
new=$(comm -13 before after | wc -l)
say "in 8 s of the wait: $(wc -l <before) connections, $new new ones, $entries log entries, the servers used $((used / 8)) % of a core"
[ "$(wc -l <before)" -ge 1000 ] || fail "fewer than 1,000 connections"
[ "$new" -le 10 ] || fail "$new new connections: the clients reconnect" # status opens some
# The leader logs some entries of its own each second, whatever the clients do; each retry of a
# client would add one.
[ "$entries" -le 80 ] || fail "$entries log entries while nothing can be granted"
[ "$(held_ms)" -gt 0 ] || fail "the wait ended meanwhile: give more with WAIT=90s"

until [ "$(held_ms)" = 0 ]; do sleep 0.05; done
ready=$(now_ms)
for pid in "${runs[@]}"; do wait "$pid" || fail "a waiting run ended with $?"; done
wait $crowd || { tail -n 20 tests; fail "not all 1,000 were granted"; }
took=$(($(now_ms) - ready))
say "all 1,003 were granted, given back and closed within $took ms after the wait"
[ $took -le 15000 ] || fail "the last one was served $took ms after the wait"
