#!/usr/bin/env bash
# deploy/rolling-restart restarts three nodes under load without an error or a gap of 2 s, starts only if all are healthy, and stops before the next node if one does not return
BASE_PORT=${BASE_PORT:-28600}
. "$(dirname "$0")/lib.sh"
cluster_start 3
wait_members
cd "$work"
# The restart command runs in its own process: it reads and writes the nodes' process ids in files.
for i in 1 2 3; do echo "${pids[$i]}" >"pid-$i"; done
on_exit+=('for i in 1 2 3; do kill -9 "$(cat "$work/pid-$i")" 2>/dev/null; done')
cat >restart <<END
pid=\$(cat "$work/pid-\${NODE#n}")
kill -TERM "\$pid"
while kill -0 "\$pid" 2>/dev/null; do sleep 0.05; done
[ ! -e "$work/stays-away-\$NODE" ] || exit 0
. "$work/functions"
node_start "\${NODE#n}"
echo "\${pids[\${NODE#n}]}" >"$work/pid-\${NODE#n}"
echo "\$NODE" >>"$work/restarted"
END
{ declare -f node_start client_port initial_cluster
  declare -p top lockstep work host BASE_PORT server_flags nodes; echo 'declare -A pids=()'; } >functions
export PROGRAM=$lockstep
rolling() { "$top/deploy/rolling-restart" "bash '$work/restart'"; }

"$lockstep" bench --workers 16 --duration "${SECONDS_OF_LOAD:-25}s" -o json >bench.json 2>bench.log & load=$!
lead=$(leader)
rolling >rolled || fail "$(cat rolled)"
wait $load || fail "the load failed: $(cat bench.log)"
[ "$(sort -u restarted | wc -l)" = 3 ] && [ "$(tail -1 restarted)" = "n$lead" ] || fail "restarted $(xargs <restarted), and n$lead led"
jq -e '.longest_gap_ms < 2000 and .errors == 0' bench.json >/dev/null || fail "errors, or a gap of 2 s or more: $(cat bench.json)"
say "restarted $(xargs <restarted), n$lead led; $(jq .grants bench.json) grants, longest gap $(jq .longest_gap_ms bench.json) ms"

: >restarted
lead=$("$lockstep" status -o json | jq -r .leader)
first=n1
[ "$lead" != n1 ] || first=n2
touch "stays-away-$first"
! PATIENCE=5 rolling >rolled 2>rolled.err || fail "it went on without $first"
grep -q "stopped after 5 s: $first is " rolled.err && [ ! -s restarted ] || fail "restarted $(xargs <restarted): $(cat rolled.err)"
say "$(cat rolled.err)"
! rolling >rolled 2>rolled.err || fail "it began without $first"
grep -q "not begun: $first is " rolled.err || fail "$(cat rolled.err)"
say "$(cat rolled.err)"
