#!/usr/bin/env bash
# endpoints of three clusters: 64 from every command, an error from Go, never a second holder; a restore under watches and a worker loses nothing silently
BASE_PORT=${BASE_PORT:-24400}
. "$(dirname "$0")/lib.sh"
cd "$work"
nodes=3
whole_cluster=$(declare -f initial_cluster)
initial_cluster() { echo "n$i=$host:$(($(client_port "$i") + 1))"; } # as with a forgotten flag: each node is its own cluster
for i in 1 2 3; do node_start $i; done
all=$(endpoints)
for i in 1 2 3; do
  one=$host:$(client_port $i)
  until "$lockstep" run --endpoints "$one" -w 2 accept/ready -- true 2>/dev/null; do sleep 0.2; done
  ids[i]=$("$lockstep" status --endpoints "$one" -o json | jq -r .cluster_id)
done
[ "$(printf '%s\n' "${ids[@]}" | sort -u | wc -l)" = 3 ] || fail "ids ${ids[*]}"
say "three servers, three clusters: ${ids[1]:0:8} ${ids[2]:0:8} ${ids[3]:0:8}"

# Every command, several times each, since a client starts with any of the endpoints.
first=$host:$(client_port 1)
LOCKSTEP_HANDLE=$("$lockstep" acquire --ttl 120s --endpoints "$first" accept/handle)
export LOCKSTEP_HANDLE
commands=0
while read -r line; do
  for _ in 1 2 3; do
    code=0
    # shellcheck disable=SC2086 # the line is words
    LOCKSTEP_ENDPOINTS=$all timeout 20 "$lockstep" $line >out 2>err </dev/null || code=$?
    [ $code -eq 64 ] || fail "$line: exit code $code: $(cat out err)"
    grep -q 'endpoints of two clusters: ' err || fail "$line: $(cat err)"
  done
  commands=$((commands + 1))
done <<'EOF'
run accept/job -- touch ran
run -n accept/job -- touch ran
hold accept/job
acquire accept/job
elect accept/job -- touch ran
elect --observe accept/job
renew
release
show accept/job
ls
sessions
history accept/job
watch
status
top -o json
revoke accept/handle --reason test
bench --duration 1s
member list
member add n9 127.0.0.1:9
member promote n1
member remove n1 --force
member replace n1 127.0.0.1:9
member lead
snapshot save backup
EOF
[ ! -e ran ] || fail "a command ran"
[ ! -e backup ] || fail "a backup was saved"
say "$commands commands, each 3 times: 64, with both endpoints and ids"

# The original mistake: three at the same time, over and over. None may hold the lock.
holders=0
for round in 1 2 3 4; do
  running=()
  for _ in 1 2 3; do
    "$lockstep" run --endpoints "$all" accept/exclusive -- sh -c 'echo held >>holders; sleep 1' 2>>err.exclusive &
    running+=($!)
  done
  for pid in "${running[@]}"; do code=0; wait "$pid" || code=$?; [ $code -eq 64 ] || fail "run: exit code $code"; done
done
[ ! -e holders ] || holders=$(wc -l <holders)
[ "$holders" -eq 0 ] || fail "$holders holders"
for i in 1 2 3; do
  "$lockstep" show accept/exclusive --endpoints "$host:$(client_port $i)" -o json | jq -e '.holders == []' >/dev/null || fail "held in cluster $i"
done
say "12 runs at the same time, 3 by 3: 12 times 64, no holder"
token=$("$lockstep" renew --endpoints "$first" -o json | jq .token)
"$lockstep" show accept/handle --endpoints "$first" -o json | jq -e ".holders[0].token == $token" >/dev/null || fail "the handle's lock"
code=0; "$lockstep" renew --endpoints "$host:$(client_port 2)" 2>err || code=$?
[ $code -eq 64 ] && grep -q 'wrong cluster' err || fail "renew at another cluster: $code $(cat err)"
code=0; "$lockstep" run --cluster "${ids[2]}" --endpoints "$first" accept/job -- touch ran 2>err || code=$?
[ $code -eq 64 ] && [ ! -e ran ] || fail "run --cluster: $code"
"$lockstep" run --cluster "${ids[1]}" --endpoints "$first" accept/job -- true || fail "run --cluster of its own"
"$lockstep" release --endpoints "$first" >/dev/null
unset LOCKSTEP_HANDLE
go_tests 'Cluster|WhatAnswersMean' ./client
say "Go client: $(grep -c '^--- PASS' tests) tests"
for i in 1 2 3; do node_kill $i; rm -rf "$work/n$i"; done
eval "$whole_cluster"

# A restore in place, with two watches, an observer and a worker running.
cluster_start 3
old=$("$lockstep" status -o json | jq -r .cluster_id)
work_() { for _ in $(seq "$1"); do "$lockstep" run -w 30 wr/job -- true; done; }
work_ 3
"$lockstep" snapshot save restore.backup >/dev/null
work_ 7
reached=$("$lockstep" watch --after "$old:2" --limit 1 -o json | jq .number)
[ "$reached" = 3 ] || fail "watch --after CLUSTER:NUMBER began with $reached"
newest=$(curl -sS "http://127.0.0.1:$(($(client_port 1) + 2))/v1/locks/wr/job" | jq -r .newest_event)
"$lockstep" watch wr/ -o json --after $((newest - 2)) --connect-timeout 60s >watched 2>watched.err & watch=$!; disown
"$lockstep" watch wr/ --connect-timeout 60s >watched.text 2>&1 & texts=$!; disown
"$lockstep" elect --observe accept/office -o json --connect-timeout 60s >observed 2>&1 & observer=$!; disown
"$lockstep" elect accept/office --identity before --ttl 4s --connect-timeout 60s -- sleep 1000 2>elected.err & elected=$!; disown
on_exit+=('kill $watch $texts $observer 2>/dev/null')
until [ "$(wc -l <watched)" = 2 ] && grep -q '"before"' observed; do kill -0 $watch || fail "watch: $(cat watched.err)"; sleep 0.1; done
for i in 1 2 3; do node_term $i; rm -rf "$work/n$i"; done
for i in 1 2 3; do
  "$lockstep" snapshot restore restore.backup --name n$i --data-dir "$work/n$i" --initial-cluster "$(initial_cluster)" --skip-wait >/dev/null
done
for i in 1 2 3; do node_start $i; done
wait_serving
new=$("$lockstep" status -o json | jq -r .cluster_id)
[ "$new" != "$old" ] || fail "the restored cluster has the old id"
leader_is() { "$lockstep" show accept/office -o json | jq -e ".holders[0].metadata.identity == \"$1\"" >/dev/null; }
deadline=$((SECONDS + 20))
until leader_is before; do [ $SECONDS -lt $deadline ] || fail "the worker of the old cluster: $(cat elected.err)"; sleep 0.05; done
say "the worker of the old cluster leads in the new one: $(tail -n 1 elected.err | cut -c1-100)"
kill -9 $elected
"$lockstep" elect accept/office --identity after --ttl 4s -- sleep 1000 2>/dev/null & second=$!; disown
on_exit+=('kill $second')
until leader_is after; do sleep 0.05; done
leads=$(now_ms)
until grep -q '"after"' observed; do [ $(($(now_ms) - leads)) -lt 2000 ] || fail "elect --observe: $(cat observed)"; sleep 0.05; done
say "elect --observe shows the new leader $(($(now_ms) - leads)) ms after it led"
work_ 5
deadline=$((SECONDS + 10))
until [ "$(jq -c 'select(.kind == "released")' watched | tail -n +2 | wc -l)" = 5 ]; do [ $SECONDS -lt $deadline ] || fail "watch: $(cat watched watched.err)"; sleep 0.1; done
jq -se --arg old "$old" --arg new "$new" '
  (map(.kind == "history_changed") | index(true)) as $at | .[$at] as $change | .[$at + 1:] as $after
  | $change.cluster == $new and ($change.was | startswith($old + ":"))
  and ($after | length == 10 and all(.cluster == $new) and ([.[].number] == (map(.number) | sort)) and .[0].number > $change.number)' watched >/dev/null ||
  fail "watch: $(cat watched)"
grep -q '^history changed: the cluster was replaced after event ' watched.text && [ "$(grep -c ' wr/job' watched.text)" -ge 10 ] || fail "watch as text: $(cat watched.text)"
say "watch: $(grep -m1 -o '^history changed.*' watched.text | cut -c1-60)..., then 10 of 10 events of the new one"
for after in 999999999 "$new:999999999" "$old:$newest"; do
  began=$(now_ms) code=0
  "$lockstep" watch --after "$after" >/dev/null 2>err || code=$?
  took=$(($(now_ms) - began))
  [ $code -eq 64 ] && [ $took -lt 2000 ] && grep -q "history has changed" err || fail "watch --after $after: $code after $took ms: $(cat err)"
done
say "watch --after of another history or of the future: 64 within $took ms"
code=$(curl -sS -o body -w '%{http_code}' -H "Last-Event-ID: $old:$newest" "http://127.0.0.1:$(($(client_port 1) + 2))/v1/watch")
[ "$code" = 400 ] && jq -e '.reason == "OUT_OF_RANGE" and (.newest | tonumber) > 0' body >/dev/null || fail "Last-Event-ID: $code $(cat body)"
say "Last-Event-ID of the old history: 400 OUT_OF_RANGE, newest $(jq -r .newest body)"
