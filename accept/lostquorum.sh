#!/usr/bin/env bash
# three of five nodes destroyed: a new cluster from a survivor's state and two new nodes; then one survivor forced in place: it serves again, tokens increase
BASE_PORT=${BASE_PORT:-26600}
. "$(dirname "$0")/lib.sh"
cluster_start 5
cd "$work"
token() { "$lockstep" run --endpoints "${1:-$(endpoints)}" -w 60 --connect-timeout 60s accept/job -- sh -c 'echo $LOCKSTEP_TOKEN'; }
"$lockstep" bench --workload free --workers 16 --duration 3s -o json >bench.json
before=$(token)
for i in 1 2 3; do node_kill "$i"; rm -rf "$work/n$i"; done
if "$lockstep" run --endpoints "$(endpoints)" -w 2 --connect-timeout 3s accept/none -- true 2>/dev/null; then fail "two of five granted"; fi
say "three of five destroyed behind token $before, nothing is granted"
node_kill 4; node_kill 5
cp -r "$work/n4" "$work/n4.copy"

began=$SECONDS
"$lockstep" snapshot save --data-dir "$work/n4" survivor.backup
mv "$work/n4" "$work/n4.old"
nodes=3
for i in 1 2 3; do
  "$lockstep" snapshot restore survivor.backup --name "n$i" --data-dir "$work/n$i" --initial-cluster "$(initial_cluster)" --longest-ttl 15s >/dev/null
  node_start "$i"
done
after=$(token)
[ "$after" -gt "$before" ] || fail "token $after after $before"
say "three new nodes from the survivor's directory: serving after $((SECONDS - began)) s, token $after"
for i in 1 2 3; do node_kill "$i"; done
before=$after

began=$SECONDS
mv "$work/n4.copy" "$work/n4"
address=$host:$(client_port 4)
start_forced() {
  "$lockstep" server --name n4 --data-dir "$work/n4" --listen "$address" --peer-listen "$host:$(($(client_port 4) + 1))" \
    --http-listen "127.0.0.1:$(($(client_port 4) + 2))" --initial-cluster "n4=$host:$(($(client_port 4) + 1))" "$@" >>"$work/n4.log" 2>&1 &
  pids[4]=$!
  disown "${pids[4]}"
}
start_forced --force-new-cluster --yes-acknowledged-grants-may-be-lost --force-wait 15s
after=$(token "$address")
[ "$after" -gt "$before" ] || fail "token $after after $before"
grep -q 'FORCING A NEW CLUSTER' "$work/n4.log" || fail "the log does not say so"
say "forced in place: serving after $((SECONDS - began)) s, token $after"
before=$after
node_kill 4
start_forced
after=$(token "$address")
[ "$after" -gt "$before" ] || fail "restarted: token $after after $before"
say "restarted without the flags: token $after"
