#!/usr/bin/env bash
# holder killed, TTL 10 s: the next is granted no earlier than TTL after its last renewal and no later than TTL + grace + 1 s after the kill
. "$(dirname "$0")/lib.sh"
cluster_start 5
cd "$work"
tries=${TRIES:-5}
# Tries run concurrently, each with its own lock name.
try() {
  local i=$1 kill_at granted renewed
  LOCKSTEP_LOG_LEVEL=debug "$lockstep" run --ttl 10s "dead/$i" -- sh -c "sleep 1000 & echo \$\$ \$! > $i.pids; sleep 1000" 2>"$i.log" &
  local holder=$!
  until [ -s "$i.pids" ]; do sleep 0.05; done
  sleep "$((4 + i % 3)).$((i % 10))"
  "$lockstep" run --ttl 10s "dead/$i" -- sh -c "for p in \$(cat $i.pids); do kill -0 \$p 2>/dev/null && echo alive >> $i.alive; done; awk '{printf \"%d\\n\", \$1 * 1000}' /proc/uptime > $i.granted" &
  local waiter=$!
  sleep 1
  kill_at=$(now_ms); kill -9 $holder
  wait $waiter || fail "the waiter failed"
  granted=$(cat "$i.granted")
  # The log line of each confirmed renewal contains the time it was sent, on the same clock.
  renewed=$(grep -o 'sent_ms=[0-9]*' "$i.log" | tail -1 | cut -d= -f2 || true)
  [ -n "$renewed" ] || fail "no renewal in the holder's log"
  echo "try $i: granted $((granted - kill_at)) ms after the kill, $((granted - renewed)) ms after the last confirmed renewal was sent" >"$i.result"
  [ ! -e "$i.alive" ] || echo "bad: child or grandchild alive at the grant" >>"$i.result"
  [ $((granted - renewed)) -ge 10000 ] || echo "bad: earlier than TTL" >>"$i.result"
  [ $((granted - kill_at)) -le 11500 ] || echo "bad: later than TTL + grace + 1 s" >>"$i.result"
}
for ((i = 1; i <= tries; i++)); do try "$i" & t[$i]=$!; done
wait "${t[@]}"
for ((i = 1; i <= tries; i++)); do say "$(cat "$i.result")"; done
! grep -q bad ./*.result || fail "see above"
[ "$(cat ./*.result | wc -l)" -eq "$tries" ] || fail "not every try ended"
