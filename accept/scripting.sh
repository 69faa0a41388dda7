#!/usr/bin/env bash
# a script acquires, renews and releases with separate commands, holds, and watches, while the leader is killed
. "$(dirname "$0")/lib.sh"
cluster_start 3
cd "$work"
code() { set +e; "$@" >out 2>err; local c=$?; set -e; echo "$c"; }

# One lock across separate commands, longer than its TTL, with the leader killed in between.
export LOCKSTEP_HANDLE
LOCKSTEP_HANDLE=$("$lockstep" acquire --ttl 8 --purpose 'month end' billing/nightly)
token=$("$lockstep" show billing/nightly -o json | jq '.holders[0].token')
[ "$(code "$lockstep" run -n billing/nightly -- true)" = 1 ] || fail "another got the lock"
killed=$(leader)
for i in 1 2 3 4 5; do
  sleep 2
  [ "$i" != 2 ] || node_kill "$killed"
  renewed=$("$lockstep" renew -o json | jq .token) || fail "renew $i: exit code $?"
  [ "$renewed" = "$token" ] || fail "renewed token $renewed, acquired $token"
done
node_start "$killed"
secret=$(jq -rR 'ltrimstr("lockstep1.") | gsub("-"; "+") | gsub("_"; "/") | @base64d | fromjson | .secret' <<<"$LOCKSTEP_HANDLE")
[ ${#secret} -ge 22 ] || fail "no secret in the handle"
for list in "show billing/nightly" sessions "history billing/nightly"; do
  # shellcheck disable=SC2086 # the command is words
  ! "$lockstep" $list -o json | grep -qF "$secret" || fail "$list tells the secret"
done
"$lockstep" release >/dev/null
[ "$("$lockstep" show billing/nightly -o json | jq '.holders | length')" = 0 ] || fail "held after release"
[ "$(code "$lockstep" renew)" = 121 ] || fail "renew of a released lock: $(cat err)"
unset LOCKSTEP_HANDLE
say "held with token $token over 5 renewals and the death of the leader, released, then 121"

# A handle in a file; a lock that is not renewed; one that is revoked.
next=$("$lockstep" acquire --ttl 1 --handle-file h billing/nightly)
[ "$next" -gt "$token" ] || fail "token $next after $token"
[ "$(stat -c %a h)" = 600 ] || fail "mode $(stat -c %a h)"
"$lockstep" run -w 20 billing/nightly -- true || fail "a lock that nobody renewed is not free"
[ "$(code "$lockstep" renew --handle-file h)" = 121 ] || fail "renew after the lease: $(cat err)"
"$lockstep" acquire --force --handle-file h billing/nightly >/dev/null
"$lockstep" revoke billing/nightly --reason stuck --by alice --now >/dev/null
[ "$(code "$lockstep" release --handle-file h)" = 121 ] || fail "release of a revoked lock: $(cat err)"
grep -q alice err || fail "who revoked is not told: $(cat err)"
say "expired and revoked locks are told with 121: $(cat err)"

# A hold ends with its script, and a watch saw everything in order.
bash -c '"$0" hold --end-with parent -o json gpu >held & until [ -s held ]; do sleep 0.05; done; "$0" run -n gpu -- true; [ $? = 1 ]' "$lockstep" || fail "hold does not hold"
"$lockstep" run -w 20 gpu -- true || fail "the hold outlives its script"
"$lockstep" sessions -o json | jq -e '.sessions | type == "array"' >/dev/null || fail "sessions"
"$lockstep" history gpu -o json | jq -e '[.events[].kind | select(. != "queued")] == ["granted", "released", "granted", "released"]' >/dev/null || fail "history: $("$lockstep" history gpu -o json)"
"$lockstep" watch gpu --limit 4 -o json >watched & watch=$!
sleep 1
for _ in 1 2; do "$lockstep" run gpu -- true; done
wait $watch || fail "watch"
[ "$(jq -r .kind watched | xargs)" = "granted released granted released" ] || fail "watched $(cat watched)"
sort -nc <(jq .number watched) || fail "numbers do not rise"
say "hold ended with its script; watch told $(wc -l <watched) events in order"
