#!/usr/bin/env bash
# 200 runs increment a file, from 20 shells, while the leader and then two followers are killed
. "$(dirname "$0")/lib.sh"
cluster_start 5
cd "$work"
echo 0 >f; : >tokens
shell() {
  for _ in $(seq 10); do
    "$lockstep" run counter -- sh -c 'n=$(cat f); echo $((n+1)) > f; echo $LOCKSTEP_TOKEN >> tokens' ||
      echo "exit $?" >>failures
  done
}
for i in $(seq 20); do shell & shells[$i]=$!; done
until_runs() { local end=$((SECONDS + 120)); while [ "$(wc -l <tokens)" -lt "$1" ]; do [ $SECONDS -lt $end ] || fail "stuck at $(wc -l <tokens) runs"; sleep 0.02; done; }
until_runs 50
first=$(leader); node_kill "$first"; say "leader n$first killed after $(wc -l <tokens) runs"
until_runs 80
node_start "$first"; say "n$first restarted after $(wc -l <tokens) runs"
until_runs 120
lead=$(leader); killed=0
for i in 1 2 3 4 5; do
  [ "$i" != "$lead" ] && [ $killed -lt 2 ] && [ "$i" != "$first" ] && { node_kill "$i"; killed=$((killed + 1)); say "follower n$i killed after $(wc -l <tokens) runs"; }
done
wait "${shells[@]}"
say "f = $(cat f), runs failed: $(cat failures 2>/dev/null | wc -l), tokens distinct: $(sort -u tokens | wc -l)"
[ "$(cat f)" = 200 ] || fail "f is $(cat f), want 200"
[ ! -s failures ] || fail "$(sort failures | uniq -c)"
[ "$(sort -un tokens | wc -l)" = 200 ] || fail "tokens repeat"
sort -nc tokens || fail "tokens do not rise in the order of the writes"
