#!/usr/bin/env bash
# the leader changes every 4 s for 2 minutes: a lock with a dead holder, TTL 10 s, is freed within 2 TTL + grace + 1 s plus an allowance for each change, 10 of 10; both handed over and killed
. "$(dirname "$0")/lib.sh"
cluster_start 3
cd "$work"
tries=${TRIES:-10} seconds=${SECONDS_EACH:-120}
# What a change of leader may add, in ms: the failover, and what the last leader had no time to log.
declare -A each=([handed]=1000 [killed]=2500)

# change HOW: changes the leader once.
change() {
  local old
  old=$(leader)
  [ "$old" != 0 ] || return 0
  if [ "$1" = handed ]; then
    "$lockstep" member lead "n$((old % nodes + 1))" >/dev/null 2>&1 || return 0
  else
    node_kill "$old"
    node_start "$old"
  fi
  now_ms >>"changes"
}

# try HOW I: a holder dies while the leaders change, and a waiter records when it gets the lock.
try() {
  local how=$1 i=$2 holder waiter
  "$lockstep" run --ttl 10s "dead/$how/$i" -- sh -c "echo held >$how.$i.held; sleep 1000" 2>/dev/null &
  holder=$!
  disown $holder # so that the shell does not report its death
  until [ -s "$how.$i.held" ]; do sleep 0.05; done
  "$lockstep" run --ttl 10s "dead/$how/$i" -- sh -c "awk '{printf \"%d\\n\", \$1 * 1000}' /proc/uptime >$how.$i.granted" 2>/dev/null &
  waiter=$!
  sleep "$((3 + i)).$((i % 10))"
  now_ms >"$how.$i.died"
  kill -9 $holder
  wait $waiter || true
}

# judge HOW: checks each try against its bound, which depends on the number of changes between death
# and grant.
judge() {
  local how=$1 i died granted took n bound all=()
  for ((i = 1; i <= tries; i++)); do
    [ -s "$how.$i.granted" ] || fail "$how: try $i was never granted"
    died=$(cat "$how.$i.died") granted=$(cat "$how.$i.granted")
    took=$((granted - died))
    n=$(awk -v a="$died" -v b="$granted" '$1 >= a && $1 <= b' changes | wc -l)
    bound=$((2 * 10000 + 500 + 1000 + n * each[$how]))
    all+=("$took/$n")
    [ $took -le $bound ] || bad+=("$how: try $i was granted $took ms after the death, over $n changes; at most $bound")
    [ $took -ge 6000 ] || bad+=("$how: try $i was granted after $took ms: its holder was not dead")
  done
  say "$how: ms from death to grant / changes of leaders meanwhile: ${all[*]}"
}

bad=()
for how in handed killed; do
  : >changes
  declare -A t=()
  for ((i = 1; i <= tries; i++)); do try "$how" "$i" & t[$i]=$!; done
  end=$((SECONDS + seconds))
  next=$(now_ms)
  while [ $SECONDS -lt $end ]; do
    change "$how"
    next=$((next + 4000))
    rest=$((next - $(now_ms)))
    [ $rest -le 0 ] || sleep "$((rest / 1000)).$(printf %03d $((rest % 1000)))"
  done
  say "$how: $(wc -l <changes) changes of leaders in $seconds s"
  for ((i = 1; i <= tries; i++)); do kill -9 "${t[$i]}" 2>/dev/null || true; done
  judge "$how"
  wait_serving
done
for b in "${bad[@]}"; do say "$b"; done
[ ${#bad[@]} -eq 0 ] || fail "${#bad[@]} of $((2 * tries)) outside the bound"
