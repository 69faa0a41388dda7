#!/usr/bin/env bash
# a cluster is created only once: wiped disks and nodes that never ran start no second history; a node of an earlier life stops no other node and says what to do
BASE_PORT=${BASE_PORT:-26800}
. "$(dirname "$0")/lib.sh"

status() { "$lockstep" status --endpoints "$host:$(client_port "$1")" -o json 2>/dev/null; }
birth() { status "$1" | jq -r .cluster_id; }
health() { status "$1" | jq -r ".members[] | select(.name == \"n$1\") | .health"; }
some() { local list= i; for i in "$@"; do list+="${list:+,}$host:$(client_port "$i")"; done; echo "$list"; } # endpoints
start() { local i; for i in "$@"; do node_start "$i"; done; }
stop() { local i; for i in "${!pids[@]}"; do node_kill "$i"; done; }
fresh() { local i; for i in "$@"; do rm -rf "${work:?}/n$i"; done; }
token() { "$lockstep" run --endpoints "$1" -w 20 --connect-timeout 20s accept/job -- sh -c 'echo $LOCKSTEP_TOKEN'; }
missing() { server_flags=${1:+--initial-missing $1}; }

alive() { local i; for i in "${!pids[@]}"; do kill -0 "${pids[$i]}" 2>/dev/null || { tail -n 3 "$work/n$i.log"; fail "n$i has ended"; }; done; }

# no_history NODES...: for a while nothing is granted there, and no node ends.
no_history() {
  if "$lockstep" run --endpoints "$(some "$@")" -w 1 --connect-timeout 5s accept/other -- true 2>/dev/null; then fail "a second history: ${*}"; fi
  alive
}

# says I WORDS...: the status of node I says that it is waiting, and why.
says() {
  local i=$1 word text= deadline=$((SECONDS + 20)) all
  shift
  while :; do
    text=$(health "$i" || true) all=yes
    for word in "$@"; do [[ $text == *"$word"* ]] || all=; done
    [ -n "$all" ] && return
    [ $SECONDS -lt $deadline ] || fail "n$i says \"$text\", want: $*"
    sleep 0.2
  done
}

# never_up SIZE LATE "WIPED" "ALIVE": the cluster starts without LATE; then ALIVE are down, WIPED
# have lost their disks and LATE starts.
never_up() {
  local late=$2 wiped=$3 kept=$4 order before
  nodes=$1
  for order in "$late $wiped" "$wiped $late"; do
    fresh 1 2 3 4 5
    missing "n$late"
    # shellcheck disable=SC2086 # lists of numbers
    start $kept $wiped
    # shellcheck disable=SC2086
    before=$(token "$(some $kept $wiped)")
    stop
    missing ""
    # shellcheck disable=SC2086
    fresh $wiped
    # shellcheck disable=SC2086
    start $order
    # shellcheck disable=SC2086
    no_history $order
    says "${wiped%% *}" "waiting for the other initial members" "n${kept%% *} ($host:"
    # shellcheck disable=SC2086
    start $kept
    # shellcheck disable=SC2086
    no_history $order $kept
    says "${wiped%% *}" "member replace n${wiped%% *}"
    stop
    say "$1 nodes, token $before, then n${kept// / n} down, n${wiped// / n} emptied, start order n${order// / n}: no second history, nobody ended"
  done
}

# earlier_life SIZE "ANEW" "PAST" FIRST: everything but PAST is lost, the cluster is created again
# without it, and PAST returns.
earlier_life() {
  local anew=$2 past=$3 old born i before after
  nodes=$1
  fresh 1 2 3 4 5
  missing ""
  # shellcheck disable=SC2086
  start $anew $past
  # shellcheck disable=SC2086
  before=$(token "$(some $anew)")
  old=$(birth 1)
  stop
  # shellcheck disable=SC2086
  fresh $anew
  missing "n${past// /,n}"
  if [ "$4" = up ]; then # it runs while the others start: they wait
    server_flags='' start "${past%% *}"
    # shellcheck disable=SC2086
    start $anew
    # shellcheck disable=SC2086
    no_history $anew
    says 1 "n${past%% *} ($host:" "rejects this node"
    node_kill "${past%% *}"
  else
    # shellcheck disable=SC2086
    start $anew
  fi
  # shellcheck disable=SC2086
  after=$(token "$(some $anew)")
  [ "$after" -gt "$before" ] || fail "token $after after $before"
  born=$(birth 1)
  [ "$born" != "$old" ] || fail "both lives are called $old"
  missing ""
  # shellcheck disable=SC2086
  start $past
  says "${past%% *}" "$old" "$born" "member replace n${past%% *}" "--join"
  for ((i = 0; i < 10; i++)); do
    # shellcheck disable=SC2086
    token "$(some $anew)" >/dev/null || fail "the others do not grant"
    alive
    sleep 0.3
  done
  grep -q "member replace n${past%% *}" "$work/n${past%% *}.log" || fail "the log of n${past%% *} does not say what to do"
  stop
  say "$1 nodes, begun again without n${past// / n} ($4 meanwhile): it waits and says what to do, 10 more grants, nobody ended"
}

never_up 3 2 "3" "1"
never_up 5 5 "3 4" "1 2"
earlier_life 3 "1 2" "3" down
earlier_life 3 "1 2" "3" up
earlier_life 5 "1 2 3" "4 5" down

fresh 1 2 3
nodes=1
if "$lockstep" server --name n1 --data-dir "$work/n1" 2>"$work/err"; then fail "a cluster was invented"; fi
grep -q -- '--initial-cluster n1=' "$work/err" || fail "$(cat "$work/err")"
say "without --initial-cluster: $(cut -c1-140 "$work/err")"
