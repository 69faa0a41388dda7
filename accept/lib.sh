# What the acceptance scripts share: a cluster of server processes in its own directory, stopped at
# the end whatever happens.
# Sourced, not run.
#
#   cluster_start N          N nodes, waits until they serve
#   node_start I, node_kill I, node_term I, node_pid I
#   leader                   the number of the leading node
#   say TEXT..., fail TEXT...
#   now_ms                   milliseconds on the clock that counts suspend
#
# BASE_PORT is the first of 10 ports a node: client +0, peers +1, HTTP +2, health +3.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lockstep=${BINARY:-$top/bin/lockstep}
work=$(mktemp -d)
host=${CLUSTER_HOST:-127.0.0.1}
BASE_PORT=${BASE_PORT:-27400}
# All nodes that a script starts share this secret.
export LOCKSTEP_CLUSTER_SECRET_FILE=$work/secret
(umask 077; head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$LOCKSTEP_CLUSTER_SECRET_FILE")
server_flags=${SERVER_FLAGS:-}
declare -A pids=()

say() { printf '   %s\n' "$*"; }
fail() { printf '   FAILED: %s\n' "$*"; exit 1; }
now_ms() { awk '{printf "%d\n", $1 * 1000}' /proc/uptime; }

# go_tests PATTERN PACKAGE [FLAG...]: runs Go tests from the top and leaves their output in
# $work/tests. Fails if no test matches, too.
go_tests() {
  (cd "$top" && go test -count=1 -v -run "$1" "$2" "${@:3}") >"$work/tests" 2>&1 ||
    { tail -n 40 "$work/tests"; fail "$1 in $2"; }
  ! grep -q 'no tests to run' "$work/tests" || fail "no test of $2 matches $1"
}

on_exit=()
cleanup() {
  local code=$?
  set +e
  for job in "${on_exit[@]}"; do eval "$job"; done
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
  jobs -p | xargs -r kill -9 2>/dev/null
  wait 2>/dev/null
  if [ $code -ne 0 ] && [ -n "${KEEP:-}" ]; then echo "   kept: $work"; else rm -rf "$work"; fi
  exit $code
}
trap cleanup EXIT
trap 'exit 130' INT TERM

client_port() { echo $((BASE_PORT + 10 * ($1 - 1))); }

endpoints() {
  local i list=
  for ((i = 1; i <= nodes; i++)); do list+="${list:+,}$host:$(client_port "$i")"; done
  echo "$list"
}

initial_cluster() {
  local i list=
  for ((i = 1; i <= nodes; i++)); do list+="${list:+,}n$i=$host:$(($(client_port "$i") + 1))"; done
  echo "$list"
}

node_start() {
  local i=$1 port
  port=$(client_port "$i")
  # shellcheck disable=SC2086 # the flags are words
  ${NODE_PREFIX:-} "$lockstep" server --name "n$i" --data-dir "$work/n$i" \
    --listen "$host:$port" --peer-listen "$host:$((port + 1))" --http-listen "127.0.0.1:$((port + 2))" \
    --initial-cluster "$(initial_cluster)" $server_flags >>"$work/n$i.log" 2>&1 &
  pids[$i]=$!
  disown "${pids[$i]}"
}

node_pid() { echo "${pids[$1]}"; }

node_end() { # SIGNAL I
  kill "-$1" "${pids[$2]}" 2>/dev/null || true
  while kill -0 "${pids[$2]}" 2>/dev/null; do sleep 0.01; done
  unset "pids[$2]"
}
node_kill() { node_end KILL "$1"; }
node_term() { node_end TERM "$1"; }

leader() {
  local i name
  for ((i = 1; i <= nodes; i++)); do
    [ -n "${pids[$i]:-}" ] || continue
    name=$("$lockstep" status --endpoints "$host:$(client_port "$i")" -o json 2>/dev/null | jq -r '.leader // empty' 2>/dev/null) || continue
    [ -n "$name" ] && { echo "${name#n}"; return; }
  done
  echo 0
}

wait_serving() {
  local deadline=$((SECONDS + 30))
  until "$lockstep" run --endpoints "$(endpoints)" -w 2 accept/ready -- true >/dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || { tail -n 5 "$work"/n*.log; fail "the cluster does not serve"; }
    sleep 0.2
  done
}

# wait_members waits until the leader hears from every node.
wait_members() {
  local deadline=$((SECONDS + 30)) healthy
  while :; do
    healthy=$("$lockstep" status --endpoints "$(endpoints)" -o json 2>/dev/null | jq '[.members[] | select(.health == "ok")] | length' 2>/dev/null || echo 0)
    [ "${healthy:-0}" -eq "$nodes" ] && return
    [ $SECONDS -lt $deadline ] || fail "only ${healthy:-0} of $nodes members are healthy"
    sleep 0.2
  done
}

cluster_start() {
  local i
  nodes=$1
  for ((i = 1; i <= nodes; i++)); do node_start "$i"; done
  export LOCKSTEP_ENDPOINTS
  LOCKSTEP_ENDPOINTS=$(endpoints)
  wait_serving
}
