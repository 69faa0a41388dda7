#!/usr/bin/env bash
# backup at token T, 10,000 more grants, restored twice on new nodes, then the whole cluster lost: tokens only increase; damaged files refused
BASE_PORT=${BASE_PORT:-26400}
. "$(dirname "$0")/lib.sh"
cluster_start 3
cd "$work"
token() { "$lockstep" run -w 30 accept/job -- sh -c 'echo $LOCKSTEP_TOKEN'; }
stop_all() { for ((n = 1; n <= nodes; n++)); do node_kill "$n"; rm -rf "$work/n$n"; done; }
restore_all() { # FILE FLAGS...
  local n file=$1
  shift
  for ((n = 1; n <= nodes; n++)); do
    "$lockstep" snapshot restore "$file" --name "n$n" --data-dir "$work/n$n" --initial-cluster "$(initial_cluster)" "$@" >/dev/null
  done
}

before=$(token)
"$lockstep" snapshot save backup
[ "$(stat -c %a backup)" = 600 ] || fail "mode $(stat -c %a backup)"
"$lockstep" snapshot verify backup -o json | jq -e ".next_token > $before" >/dev/null || fail "the backup is older than token $before"
say "saved at token $before"
grants=0
while [ "$grants" -lt 10000 ]; do
  "$lockstep" bench --workload free --workers 32 --duration 5s -o json >bench.json
  grants=$((grants + $(jq .grants bench.json)))
done
highest=$(jq .highest_token bench.json)
say "$grants more grants, the highest token is $highest"

for damage in cut flipped foreign; do
  cp backup "$damage"
  case $damage in
    cut) truncate -s -9 cut ;;
    flipped) printf '\xff' | dd of=flipped bs=1 seek=$(($(stat -c %s backup) / 2)) conv=notrunc status=none ;;
    foreign) head -c 4096 /dev/urandom >foreign ;;
  esac
  if "$lockstep" snapshot restore "$damage" --name n1 --data-dir "$work/fresh" --initial-cluster "$(initial_cluster)" 2>"$damage.err"; then fail "$damage file restored"; fi
  [ ! -e "$work/fresh" ] || fail "$damage file: the target was touched"
  say "$damage: $(head -c 120 "$damage.err")"
done
if "$lockstep" snapshot restore backup --name n1 --data-dir "$work/n1" --initial-cluster "$(initial_cluster)" 2>full.err; then fail "restored over a node"; fi

for round in 1 2; do
  stop_all
  restore_all backup --skip-wait
  for ((i = 1; i <= nodes; i++)); do node_start "$i"; done
  wait_serving
  after=$(token)
  [ "$after" -gt "$highest" ] || fail "restore $round: token $after after $highest"
  say "restore $round: token $after after $highest"
  highest=$after
done

stop_all
restore_all backup --longest-ttl 10s
for ((i = 1; i <= nodes; i++)); do node_start "$i"; done
began=$SECONDS
if "$lockstep" run -w 1 --connect-timeout 3s accept/early -- true 2>/dev/null; then fail "granted in the wait"; fi
after=$(token)
[ $((SECONDS - began)) -ge 8 ] || fail "granted after $((SECONDS - began)) s"
[ "$after" -gt "$highest" ] || fail "token $after after $highest"
say "restore with a wait of 10 s: granted after $((SECONDS - began)) s, token $after"
highest=$after

stop_all
for ((i = 1; i <= nodes; i++)); do node_start "$i"; done
wait_serving
after=$(token)
[ "$after" -gt "$highest" ] || fail "new cluster: token $after after $highest"
say "everything lost and begun anew: token $after after $highest"
