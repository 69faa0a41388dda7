#!/usr/bin/env bash
# slow disks: if all are slow, the leader stays, a lease survives, and grants continue at the rate of the disks; a leader with the only slow disk is replaced
. "$(dirname "$0")/lib.sh"
command -v strace >/dev/null || fail "needs strace: run scripts/install-packages"
slowly() { echo "strace -D -f --seccomp-bpf -qq -o /dev/null -e trace=fsync,fdatasync -e inject=fsync,fdatasync:delay_enter=$1000"; } # MS
$(slowly 1) true 2>/dev/null || fail "strace cannot delay syncs here"
delays=${DELAYS-50 100 200 400 800 1200 1600 2000}
span=${SPAN:-40} # seconds of load for each delay
(cd "$top" && go build -tags keep_leader -o "$work/keep" ./cmd/lockstep) # the same, but a leader with a slow disk stays
cd "$work"

metric() { # NAME: the maximum over the nodes
  local i
  for ((i = 1; i <= nodes; i++)); do curl -s -m 2 "http://127.0.0.1:$(($(client_port "$i") + 2))/metrics" || true; done |
    awk -v name="$1" '$1 ~ "^" name "([{]|$)" && $2 > most { most = $2 } END { printf "%d\n", most }'
}

metric_of() { # I NAME
  curl -s -m 2 "http://127.0.0.1:$(($(client_port "$1") + 2))/metrics" | awk -v name="$2" '$1 ~ "^" name "([{]|$)" { printf "%d\n", $2 }'
}

wait_leader() { # SECONDS
  local deadline=$((SECONDS + $1))
  until "$lockstep" run --endpoints "$(endpoints)" --ttl 30 --connect-timeout 30 -w 30 accept/ready -- true >/dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || { tail -n 5 n*.log; fail "the cluster does not serve"; }
  done
}

# load MS BINARY: sets $grants, $elections and $lost to the number of grants, elections and lost
# leases.
load() {
  local i holder before was=$lockstep
  lockstep=$2
  cluster_start 3
  for i in 1 2 3; do node_term "$i"; done
  for i in 1 2 3; do NODE_PREFIX=$(slowly "$1") node_start "$i"; done
  wait_leader 120
  rm -f held
  "$lockstep" run --ttl 30s held -- sh -c 'echo >held; exec sleep 1000' 2>held.err & holder=$!
  for ((i = 0; i < 300; i++)); do [ ! -e held ] || break; sleep 0.1; done
  [ -e held ] || fail "$1 ms a sync: no lock within 30 s: $(cat held.err)"
  before=$(metric lockstep_term)
  "$lockstep" bench --workload free --workers 16 --ttl 30s --duration "${span}s" -o json >bench.json 2>bench.err || true
  elections=$(($(metric lockstep_term) - before))
  grants=$(jq '.grants // 0' bench.json 2>/dev/null || echo 0)
  lost=0; kill -0 $holder 2>/dev/null || lost=1
  kill $holder 2>/dev/null; wait $holder 2>/dev/null || true
  for i in 1 2 3; do node_kill "$i"; rm -rf "n$i"; done
  lockstep=$was
}

# one_slow: only the leader's disk becomes slow under load; another node must lead within 2 s.
one_slow() {
  local slow begin bench
  cluster_start 3
  "$lockstep" bench --endpoints "$(endpoints)" --workload free --workers 4 --ttl 30s --duration 15s -o json >bench.json 2>bench.err & bench=$!
  sleep 3
  slow=$(leader)
  strace -f -qq -o /dev/null -p "$(node_pid "$slow")" -e trace=fsync,fdatasync -e inject=fsync,fdatasync:delay_enter=800000 &
  begin=$(now_ms)
  until [ "$(metric_of "$slow" lockstep_is_leader)" = 0 ] || [ $(($(now_ms) - begin)) -gt 10000 ]; do sleep 0.05; done
  took=$(($(now_ms) - begin))
  wait $bench || true
  say "one disk slow, 800 ms a sync: left after $took ms"
  for i in 1 2 3; do node_kill "$i"; rm -rf "n$i"; done
}

bad=0
one_slow
[ "$took" -le 2000 ] || bad=1
for ms in $delays; do
  load "$ms" "$work/keep"; kept=$grants
  load "$ms" "$lockstep"
  say "$ms ms a sync: $grants grants in $span s ($kept without the rule), $elections elections, $([ $lost = 0 ] && echo 'the lease lives' || echo 'THE LEASE IS LOST')"
  [ $((2 * grants)) -ge "$kept" ] && [ "$grants" -gt 0 ] && [ "$elections" -le 4 ] && [ $lost = 0 ] || bad=1
done
[ $bad = 0 ] || fail "see above"
