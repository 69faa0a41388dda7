#!/usr/bin/env bash
# run frozen alone, and run, watcher and child frozen together for 3 TTL: 20 of 20 each
. "$(dirname "$0")/lib.sh"
cluster_start 5
cd "$work"
tries=${TRIES:-20}
group_alive() { for p in $(cat "$1.pids"); do [ -d "/proc/$p" ] && ! grep -q '^State:.*[ZX]' "/proc/$p/status" 2>/dev/null && return 0; done; return 1; }
tree() { local c; for c in $(pgrep -P "$1"); do echo "$c"; tree "$c"; done; }
start_holder() {
  "$lockstep" run --ttl 2s "frozen/$1" -- sh -c "echo \$LOCKSTEP_TOKEN > $1.token; sleep 1000 & echo \$\$ \$! > $1.pids; sleep 1000" 2>"$1.err" &
  holder=$!
  until [ -s "$1.pids" ]; do sleep 0.02; done
}
next_holder() {
  "$lockstep" run --ttl 2s "frozen/$1" -- sh -c "for p in \$(cat $1.pids); do [ -d /proc/\$p ] && ! grep -q '^State:.*[ZX]' /proc/\$p/status && echo alive >> $1.alive; done; echo \$LOCKSTEP_TOKEN > $1.next" &
  waiter=$!
}
alone() {
  local i=$1
  start_holder "$i"; next_holder "$i"; sleep 0.5
  kill -STOP $holder
  wait $waiter
  kill -CONT $holder
  local code=0; wait $holder || code=$?; echo $code >"$i.exit"
}
together() {
  local i=$1 all begin
  start_holder "$i"; sleep 0.5
  all="$holder $(tree "$holder") $(cat "$i.pids")"
  kill -STOP $all
  next_holder "$i"
  sleep 6
  wait $waiter
  # The next holder ran while they were all frozen, not gone, so it found them alive.
  rm -f "$i.alive"
  begin=$(date +%s%N)
  kill -CONT $all 2>/dev/null || true
  while group_alive "$i"; do sleep 0.002; done
  echo $((($(date +%s%N) - begin) / 1000000)) >"$i.took"
  local code=0; wait $holder || code=$?; echo $code >"$i.exit"
}
check_tokens() { for ((i = $1; i < $1 + tries; i++)); do [ "$(cat "$i.next")" -gt "$(cat "$i.token")" ] || fail "try $i: token $(cat "$i.next") after $(cat "$i.token")"; done; }
batch() { # WHAT FIRST
  local i at=()
  for ((i = $2; i < $2 + tries; i++)); do
    $1 "$i" & at+=($!)
    if [ ${#at[@]} -ge 4 ]; then wait "${at[@]}"; at=(); fi
  done
  [ ${#at[@]} -eq 0 ] || wait "${at[@]}"
}
batch alone 100
[ "$(ls ./1*.next | wc -l)" -eq "$tries" ] || fail "not every next holder ran"
! ls ./1*.alive >/dev/null 2>&1 || fail "alive when the next holder started: $(ls ./1*.alive)"
check_tokens 100
[ "$(sort -u ./1*.exit)" = 121 ] || fail "exit codes: $(sort ./1*.exit | uniq -c)"
say "run frozen alone: the group was gone before the next holder started, $tries of $tries"
batch together 200
check_tokens 200
worst=$(cat ./2*.took | sort -n | tail -1)
[ "$(sort -u ./2*.exit)" = 121 ] || fail "exit codes: $(sort ./2*.exit | uniq -c)"
most=${MOST_MS:-100} # a run beside others needs room
[ "$worst" -le "$most" ] || fail "the group was killed $worst ms after waking: $(cat ./2*.took | sort -n | tr '\n' ' ')"
say "all frozen for 3 TTL: killed at most $worst ms after waking, exit 121, larger token, $tries of $tries"
