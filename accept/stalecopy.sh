#!/usr/bin/env bash
# a node's directory replaced by an older copy, including one from its last run, one used twice at once, and a clone of it: refused with what to do, never two holders, tokens never decrease
BASE_PORT=${BASE_PORT:-26900}
. "$(dirname "$0")/lib.sh"
cluster_start 3

health() { "$lockstep" status --endpoints "$host:$1" -o json 2>/dev/null | jq -r '.members[] | select(.name == "n3") | .health'; }
last=0
grant() { # one holder at a time, and its token is above all earlier ones
  local token
  token=$("$lockstep" run -w 20 --connect-timeout 20s accept/job -- sh -c 'mkdir "$0" || exit 9; echo $LOCKSTEP_TOKEN; rmdir "$0"' "$work/held") || fail "no grant, or two holders"
  [ "$token" -gt "$last" ] || fail "token $token after $last"
  last=$token
}
says() { # PORT WORDS...
  local port=$1 word text= deadline=$((SECONDS + 20)) all
  shift
  while :; do
    text=$(health "$port" || true) all=yes
    for word in "$@"; do [[ $text == *"$word"* ]] || all=; done
    [ -n "$all" ] && return
    [ $SECONDS -lt $deadline ] || fail "port $port says \"$text\", want: $*"
    sleep 0.2
  done
}
alive() { local i; for i in "${!pids[@]}"; do kill -0 "${pids[$i]}" 2>/dev/null || { tail -n 3 "$work/n$i.log"; fail "n$i has ended"; }; done; }

grant
node_kill 3
cp -r "$work/n3" "$work/copy"
node_start 3
wait_members
for _ in 1 2 3 4 5; do grant; done
"$lockstep" bench --workload free --workers 16 --duration 1s >/dev/null

node_kill 3
mv "$work/n3" "$work/good"
cp -r "$work/copy" "$work/n3"
for round in 1 2 3 4; do
  node_start 3
  says "$(client_port 3)" "older copy" "member replace n3"
  grant
  alive
  node_kill 3
done
! grep -q 'tocommit' "$work/n3.log" || fail "Raft's panic"
grep -q 'older copy' "$work"/n[12].log || fail "the others do not say it"
say "an older copy of n3's directory, started 4 times: refused with what to do, the others granted up to token $last"

rm -rf "$work/n3"
mv "$work/good" "$work/n3"
cp -r "$work/n3" "$work/twin"
node_start 3
wait_members
port=$(client_port 4)
"$lockstep" server --name n3 --data-dir "$work/twin" --listen "$host:$port" --peer-listen "$host:$((port + 1))" --http-listen "127.0.0.1:$((port + 2))" \
  --advertise-peer "$host:$(($(client_port 3) + 1))" --initial-cluster "$(initial_cluster)" >>"$work/n4.log" 2>&1 &
pids[4]=$!
disown "${pids[4]}"
says "$port" "runs twice" "member replace n3"
for _ in 1 2 3 4 5; do grant; alive; done
wait_members
grep -q "clients at\"*=\"*$host:$port" "$work"/n[12].log || fail "the log does not name the second one"
say "the same directory twice at once: the second is refused and named, the first goes on, token $last"

node_kill 4
[ "$(leader)" != 3 ] || { node_term 3; node_start 3; wait_members; }
cp -r "$work/n3" "$work/clone"
"$lockstep" server --name n3 --data-dir "$work/clone" --listen "$host:$port" --peer-listen "$host:$((port + 1))" --http-listen "127.0.0.1:$((port + 2))" \
  --advertise-peer "$host:$(($(client_port 3) + 1))" --initial-cluster "$(initial_cluster)" >>"$work/n4.log" 2>&1 &
pids[4]=$!
disown "${pids[4]}"
for _ in 1 2 3 4 5; do grant; alive; done
node_kill 4
node_kill 3
node_start 3
wait_members
grant
say "a clone of the running directory: not let in, n3 goes on and is back after a restart, token $last"

[ "$(leader)" != 3 ] || { node_term 3; node_start 3; wait_members; }
rm -rf "$work/live"
cp -r "$work/n3" "$work/live"
for _ in 1 2 3 4 5; do grant; done
sleep 1
lead=$(leader)
[ "$lead" != 3 ] || fail "n3 leads"
node_kill 3
mv "$work/n3" "$work/good"
mv "$work/live" "$work/n3"
node_start 3
says "$(client_port 3)" "older copy" "acknowledged entry" "member replace n3"
grant
alive
node_kill "$lead"
node_kill 3
node_start 3
says "$(client_port 3)" "older copy" "member replace n3"
! "$lockstep" run -w 3 --connect-timeout 3s accept/other -- true 2>/dev/null || fail "granted by a majority with the copy"
node_start "$lead"
grant
! grep -q 'tocommit' "$work/n3.log" || fail "Raft's panic"
say "a copy of n3's last run: refused by the leader, stays out when that is gone, token $last"
