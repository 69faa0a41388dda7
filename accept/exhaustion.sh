#!/usr/bin/env bash
# exhaustion: one client pushes each limit while another does 50 grants/s: no node ends, the other client's p99 at most doubles, /livez answers within 1 s
# CASES="NAME..." selects cases. A case is a function case_NAME that pushes a limit, and does any
# additional checks itself.
. "$(dirname "$0")/lib.sh"
command -v prlimit >/dev/null || fail "needs prlimit: run scripts/install-packages"
exhaust=$work/exhaust
(cd "$top/cmd" && go build -o "$exhaust" ./internal/exhaust)
span=${SPAN:-10}   # seconds of grants during each case, and the same without it
floor=${FLOOR:-60} # ms: below that, a p99 says more about the machine than about the service
stranger=127.0.0.2 # source address of one client; the other uses 127.0.0.1

http_port() { echo $(($(client_port "$1") + 2)); }
health_port() { echo $(($(client_port "$1") + 3)); }
metric_of() { # I NAME: summed over the labels, if it has any; 0 if it does not exist
  curl -s -m 5 "http://127.0.0.1:$(health_port "$1")/metrics" | awk -v name="$2" 'index($0, name " ") == 1 || index($0, name "{") == 1 {v += $NF} END {printf "%d\n", v}'
}
rss_mib() { awk '/^VmRSS/ {printf "%d\n", $2 / 1024}' "/proc/$(node_pid "$1")/status"; }
open_files() { find "/proc/$(node_pid "$1")/fd" -mindepth 1 2>/dev/null | wc -l; }

pushers=()
# push COMMAND...: runs exhaust during the grants, until calm. Waits until everything is opened;
# sets $opened to the number.
push() {
  local out=$work/push.${#pushers[@]}
  : >"$out"
  "$exhaust" "$@" >"$out" 2>&1 & pushers+=($!)
  until grep -q '^ready' "$out"; do kill -0 "${pushers[-1]}" 2>/dev/null || fail "exhaust $*: $(cat "$out")"; sleep 0.1; done
  opened=$(awk '/^ready/ {print $2}' "$out")
}
calm() {
  [ ${#pushers[@]} -eq 0 ] || { kill "${pushers[@]}"; wait "${pushers[@]}"; } 2>/dev/null || true
  pushers=()
  rm -f "$work"/push.*
}
on_exit+=(calm)

# grants FILE: 50 per second for the span, from the usual address.
grants() { "$exhaust" grants --endpoints "$(endpoints)" --rate 50 --for "${span}s" >"$1" 2>"$1.err"; }
p99() { jq '.p99_ms | ceil' "$1"; }

# alive: every node is running, and says so within a second.
alive() {
  local i
  for ((i = 1; i <= nodes; i++)); do
    kill -0 "$(node_pid "$i")" 2>/dev/null || { tail -n 5 "$work/n$i.log"; fail "$1: n$i has ended"; }
    curl -sf -m 1 -o /dev/null "http://127.0.0.1:$(health_port "$i")/livez" || fail "$1: /livez of n$i does not answer within 1 s"
  done
}

# alone: how long the grants take without a push; the machine is shared, so a push is measured
# between two of these.
alone() { grants "$work/alone" || fail "alone: $(cat "$work/alone.err")"; p99 "$work/alone"; }

# measure NAME: the grants of the other client during the push, while the nodes are checked. Sets
# $beside99.
measure() {
  local job
  grants "$work/beside" & job=$!
  while kill -0 $job 2>/dev/null; do alive "$1"; sleep 0.3; done
  wait $job || fail "$1: $(cat "$work/beside.err")"
  [ "$(jq .failed "$work/beside")" = 0 ] || fail "$1: $(jq -r .error "$work/beside")"
  beside99=$(p99 "$work/beside")
}

# beside NAME: pushes, and measures the grants of the other client before, during and after it. If
# the p99 is too high, all three are repeated once.
beside() {
  local name=$1 try before after most
  for try in 1 2; do
    before=$(alone)
    "case_$name"
    measure "$name"
    if declare -F "after_$name" >/dev/null; then "after_$name"; fi
    calm
    after=$(alone)
    most=$((2 * (before > after ? before : after)))
    [ $most -ge "$floor" ] || most=$floor
    say "$name: p99 $beside99 ms beside, $before and $after ms alone; $(jq .grants "$work/beside") grants"
    [ "$beside99" -gt $most ] || return 0
  done
  fail "$name: p99 of $beside99 ms, at most $most"
}

# --- Sockets ---

# More connections than the nodes allow, from one address and from many.
case_connections() {
  local i lead
  lead=$(leader)
  push connections --number 1600 --from $stranger "$host:$(client_port "$lead")"
  push connections --number 1600 --busy --from 127.0.0.3 "$host:$(client_port "$lead")"
  for i in 4 5 6; do push connections --number 400 --from "127.0.0.$i" "$host:$(client_port "$lead")"; done
}
after_connections() {
  local lead
  lead=$(leader)
  say "connections: $(metric_of "$lead" 'lockstep_connections{port="client"}') open of $(metric_of "$lead" 'lockstep_connections_limit{port="client"}'), $(metric_of "$lead" lockstep_connections_refused_total) refused, $(metric_of "$lead" lockstep_connections_closed_idle_total) closed idle, $(open_files "$lead") of $files files"
  [ "$(metric_of "$lead" lockstep_connections_refused_total)" -gt 0 ] || fail "none was refused"
  [ "$(metric_of "$lead" lockstep_connections_closed_idle_total)" -gt 0 ] || fail "no idle one was closed"
  [ "$(open_files "$lead")" -lt $((files - 256)) ] || fail "what is kept for the log is used up"
}

# Open responses over HTTP use all the connections of the HTTP port.
case_http() {
  local i
  for ((i = 1; i <= nodes; i++)); do
    push watches --number 1024 --from $stranger "http://127.0.0.1:$(http_port "$i")/v1/watch?prefix=nobody/"
    push watches --number 1024 --from 127.0.0.3 "http://127.0.0.1:$(http_port "$i")/v1/watch?prefix=nobody/"
  done
}
after_http() {
  [ $(($(metric_of 1 'lockstep_connections_refused_total{bound="address",port="http"}') + $(metric_of 1 'lockstep_connections_closed_idle_total{port="http"}'))) -gt 0 ] || fail "http: no place was missing"
  say "http: $(metric_of 1 'lockstep_connections{port="http"}') of $(metric_of 1 'lockstep_connections_limit{port="http"}') places taken"
}

# 15 MiB of headers, 20 times: each rejected, and nothing kept.
case_headers() {
  local lead before after
  lead=$(leader) before=$(rss_mib "$lead")
  push headers --number 20 --bytes $((15 << 20)) --from $stranger "$host:$(client_port "$lead")"
  [ "$(awk '/^refused/ {print $2}' "$work"/push.*)" = 20 ] || fail "headers: not all were refused: $(cat "$work"/push.*)"
  after=$(rss_mib "$lead")
  say "headers: RSS $before MiB, then $after MiB"
  [ $((after - before)) -lt 20 ] || fail "headers: $((after - before)) MiB were kept"
}

# --- Requests ---

# 200 concurrent searches of the history on one connection, for a name that has none.
case_reads() { push calls --number 200 --from $stranger "$host:$(client_port "$(leader)")"; }

# 400 lists of 800 long names that nothing reads.
case_unread() {
  local lead i api session names held=$work/held
  lead=$(leader) api=http://127.0.0.1:$(http_port "$lead")/v1
  session=$(curl -sf "$api/sessions" -H 'Content-Type: application/json' -d '{"ttl_ms": 120000}')
  for ((i = 0; i < 50; i++)); do
    names=$(jq -nc --arg i "$i" '[range(16) | "unread/\($i)/\(.)/" + "n" * 450]')
    jq -c --argjson names "$names" '{secret, spec: {names: $names}}' <<<"$session" |
      curl -sf -o /dev/null "$api/sessions/$(jq -r .session <<<"$session")/acquire" -H 'Content-Type: application/json' -d @- || fail "unread: $i was not granted"
  done
  rss_mib "$lead" >"$held"
  push calls --number 400 --deaf --from $stranger "$host:$(client_port "$lead")"
}
after_unread() {
  local lead before after
  lead=$(leader) before=$(cat "$work/held") after=$(rss_mib "$lead")
  say "unread: RSS $before MiB, then $after MiB; $(metric_of "$lead" lockstep_unread_bytes) bytes unread, $(metric_of "$lead" lockstep_untaken_total) connections ended"
  [ $((after - before)) -lt 64 ] || fail "unread: $((after - before)) MiB were kept"
}

# --- What the cluster keeps ---

# refused CASE LIMIT [TIMES]: so many pushes were refused, each by this limit of the stranger's address.
refused() {
  local n
  n=$(cat "$work"/push.* | grep -c "^refusal.* desc = $2 of clients at $stranger: at most" || true)
  [ "$n" -eq "${3:-1}" ] || fail "$1: $(cat "$work"/push.*)"
}

# All sessions that one address may have.
case_sessions() { push sessions --number 100000 --from $stranger "$host:$(client_port "$(leader)")"; }
after_sessions() {
  refused sessions sessions
  say "sessions: $opened opened, $(metric_of "$(leader)" lockstep_sessions) in all"
}

# All locks that one address may hold.
case_claims() { push claims --number 700000 --from $stranger "$host:$(client_port "$(leader)")"; }
after_claims() {
  refused claims claims
  say "claims: $opened held by one client, RSS of the leader $(rss_mib "$(leader)") MiB"
}

# All bytes of state that one address may have, and backups of them that nobody reads.
case_state() {
  local lead
  lead=$(leader)
  push claims --number 100000 --bytes 8192 --from $stranger "$host:$(client_port "$lead")"
  push backups --number 20 --from $stranger "$host:$(client_port "$lead")"
}
after_state() {
  refused state "bytes of sessions and claims"
  say "state: $(metric_of "$(leader)" lockstep_state_bytes) bytes, RSS of the leader $(rss_mib "$(leader)") MiB"
}

# All watches that one address may have on each node.
case_watches() {
  local i
  for ((i = 1; i <= nodes; i++)); do push streams --number 2000 --from $stranger "$host:$(client_port "$i")"; done
}
after_watches() {
  refused watches watches "$nodes"
  say "watches: $opened of one address on n$nodes"
  timeout 2 "$lockstep" watch --endpoints "$host:$(client_port 1)" nobody/ >/dev/null 2>"$work/watch.err" || [ $? -eq 124 ] || fail "watches: another address has none: $(cat "$work/watch.err")"
}

# The nodes run out of descriptors while the log needs new ones: a node waits, stays alive and
# recovers.
descriptors() {
  local lead before i
  lead=$(leader)
  "$lockstep" bench --workload free --workers 64 --ttl 30s --duration 40s -o json >"$work/bench.json" 2>"$work/bench.err" &
  local bench=$!
  sleep 2
  for ((i = 1; i <= nodes; i++)); do prlimit --pid "$(node_pid "$i")" --nofile=4:"$files"; done
  before=$SECONDS
  until [ "$(metric_waits)" -gt 0 ]; do
    [ $((SECONDS - before)) -lt 30 ] || fail "descriptors: no log had to wait"
    sleep 0.5
  done
  sleep 15 # longer than a disk may hang
  for ((i = 1; i <= nodes; i++)); do
    kill -0 "$(node_pid "$i")" 2>/dev/null || { tail -n 3 "$work/n$i.log"; fail "descriptors: n$i has ended"; }
    prlimit --pid "$(node_pid "$i")" --nofile="$files":"$files"
  done
  wait $bench || true
  wait_serving
  alive descriptors
  grep -l "no file descriptor left" "$work"/n*.log >/dev/null || fail "descriptors: no log says so"
  say "descriptors: $(cat "$work"/n*.log | grep -c 'file descriptor available again') waits ended, all nodes live and grant"
}
# /metrics needs a descriptor itself, so the log is checked instead.
metric_waits() { cat "$work"/n*.log | grep -c "no file descriptor left: waiting" || true; }

files=1024
NODE_PREFIX="prlimit --nofile=$files:$files"
cluster_start 3
wait_members
for name in ${CASES-connections http headers reads unread watches sessions claims state}; do beside "$name"; done
[ -n "${CASES-}" ] || descriptors
