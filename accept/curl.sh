#!/usr/bin/env bash
# curl alone opens a session, acquires with a wait, sees holder and waiters, watches and releases, on any node; the examples of docs/api.md work as printed; each invalid input gets an explanation
. "$(dirname "$0")/lib.sh"
cluster_start 3
lead=$(leader); at=$((lead % 3 + 1)) # a follower
api=http://127.0.0.1:$(($(client_port "$at") + 2))/v1
json='Content-Type: application/json'
say "n$lead leads, curl asks n$at"

post() { curl -sS --fail-with-body "$api/$1" -H "$json" -d "$2"; }
get() { curl -sS --fail-with-body "$api/$1"; }

opened=$(post sessions '{"ttl_ms":60000,"metadata":{"host":"h1"}}')
s=$(jq -r .session <<<"$opened"); k=$(jq -r .secret <<<"$opened")
other=$(post sessions '{"ttl_ms":60000}')
s2=$(jq -r .session <<<"$other"); k2=$(jq -r .secret <<<"$other")

curl -sSN "$api/watch?prefix=billing/" >"$work/watch" 2>/dev/null &
watching=$!
until grep -q '^event: reached' "$work/watch"; do sleep 0.05; done

first=$(post "sessions/$s/acquire" '{"secret":"'"$k"'","spec":{"names":["billing/nightly"],"wait_ms":5000}}')
token=$(jq -r .claim.token <<<"$first"); seq=$(jq -r .claim.seq <<<"$first")
post "sessions/$s2/acquire" '{"secret":"'"$k2"'","spec":{"names":["billing/nightly"],"wait_ms":30000}}' >"$work/second" &
waiting=$!
until [ "$(get locks/billing/nightly | jq '.lock.waiters | length')" = 1 ]; do sleep 0.05; done
get locks/billing/nightly | jq -e --arg s "$s" --arg t "$token" --arg w "$s2" \
  '.lock.holders[0].session == $s and .lock.holders[0].token == $t and .lock.waiters[0].session == $w' >/dev/null || fail "holder and waiter"
[ "$(get sessions | jq '[.sessions[] | select(.holding == 1 or .waiting == 1)] | length')" = 2 ] || fail "sessions"
post "sessions/$s/keepalive" '{"secret":"'"$k"'"}' >/dev/null
post "sessions/$s/release" '{"secret":"'"$k"'","seq":"'"$seq"'","token":"'"$token"'"}' >/dev/null
wait "$waiting" || fail "the waiter was not granted: $(cat "$work/second")"
token2=$(jq -r .claim.token "$work/second")
[ "$token2" -gt "$token" ] || fail "token $token2 after $token"
say "granted $token, waited, released, granted $token2"
until [ "$(grep -c '^event: granted' "$work/watch")" -ge 2 ]; do sleep 0.05; done
grep -q '^event: queued' "$work/watch" && grep -q '^event: released' "$work/watch" || fail "watch: $(cat "$work/watch")"
kill "$watching"; wait "$watching" 2>/dev/null || true
get history/billing/nightly | jq -e '.events | length == 4' >/dev/null || fail "history"
get status | jq -e '.members | length == 3' >/dev/null || fail "status"
say "the watch saw it, and the history has it"

# bad STATUS REASON WHAT CURL-ARGUMENTS...
bad() {
  local status=$1 reason=$2 what=$3 got
  shift 3
  got=$(curl -sS -o "$work/body" -w '%{http_code}' "$@")
  [ "$got" = "$status" ] && [ "$(jq -r .reason "$work/body")" = "$reason" ] && [ -n "$(jq -r '.message // empty' "$work/body")" ] ||
    fail "$what: $got $(head -c 300 "$work/body"), want $status $reason"
  count=$((count + 1))
}
count=0
acquire() { bad "$1" "$2" "$3" "$api/sessions/$s/acquire" -H "$json" -d '{"secret":"'"$k"'","spec":'"$4"'}'; }
acquire 400 INVALID_NAME "an empty name" '{"names":[""]}'
acquire 400 INVALID_NAME "a name of 513 bytes" '{"names":["'"$(printf 'a%.0s' {1..513})"'"]}'
{ printf '{"secret":"%s","spec":{"names":["' "$k"; head -c 1000000 /dev/zero | tr '\0' a; printf '"]}}'; } >"$work/big"
bad 413 QUOTA_EXCEEDED "a name of 1 MB" "$api/sessions/$s/acquire" -H "$json" --data-binary @"$work/big"
acquire 400 INVALID_NAME "a control character" '{"names":["a\u001b[31m"]}'
acquire 400 INVALID_NAME "a NUL" '{"names":["a\u0000"]}'
acquire 400 INVALID_ARGUMENT "not UTF-8" $'{"names":["a\xff"]}'
acquire 400 INVALID_NAME "a dot segment" '{"names":["a/../b"]}'
acquire 400 INVALID_NAME "an empty segment" '{"names":["a//b"]}'
acquire 400 INVALID_NAME "a zero-width space" '{"names":["a\u200bb"]}'
acquire 400 INVALID_NAME "a trailing space" '{"names":["a "]}'
acquire 403 RESERVED_NAME "a reserved name" '{"names":["_sys/a"]}'
acquire 409 BUSY "a try of a held lock" '{"names":["billing/nightly"],"wait_ms":0}'
[ "$(jq -r '.holders[0].session' "$work/body")" = "$s2" ] || fail "BUSY does not name the holder: $(cat "$work/body")"
acquire 400 MODE_MISMATCH "another mode" '{"names":["billing/nightly"],"mode":"MODE_PERMITS","weight":1,"capacity":2}'
acquire 400 OUT_OF_RANGE "a wait beyond all bounds" '{"names":["a"],"wait_ms":"18446744073709551615"}'
acquire 400 INVALID_METADATA "metadata of 4097 bytes" '{"names":["a"],"metadata":{"k":"'"$(printf 'v%.0s' {1..4097})"'"}}'
bad 400 INVALID_ARGUMENT "deep JSON" "$api/sessions" -H "$json" -d "{\"metadata\":$(printf '[%.0s' {1..20000})"
bad 400 INVALID_ARGUMENT "a negative TTL" "$api/sessions" -H "$json" -d '{"ttl_ms":-1}'
bad 400 OUT_OF_RANGE "a TTL of 1 ms" "$api/sessions" -H "$json" -d '{"ttl_ms":1}'
bad 400 OUT_OF_RANGE "a TTL that overflows" "$api/sessions" -H "$json" -d '{"ttl_ms":"9223372036854775807"}'
bad 404 SESSION_UNKNOWN "an unknown session" "$api/sessions/$(printf '0%.0s' {1..32})/keepalive" -H "$json" -d '{"secret":"'"$k"'"}'
bad 404 SESSION_UNKNOWN "another's secret" "$api/sessions/$s/keepalive" -H "$json" -d '{"secret":"'"$k2"'"}'
bad 400 NOT_HELD "a made-up token" "$api/sessions/$s2/release" -H "$json" -d '{"secret":"'"$k2"'","seq":"1","token":"1"}'
bad 400 INVALID_ARGUMENT "a revocation without a reason" "$api/revoke" -H "$json" -d '{"name":"a"}'
bad 405 UNSUPPORTED "a wrong verb" -X DELETE "$api/sessions"
bad 404 UNSUPPORTED "a wrong path" "$api/nothing"
bad 415 INVALID_ARGUMENT "a wrong content type" "$api/sessions" -d 'ttl_ms=5000'
bad 400 INVALID_ARGUMENT "duplicate keys" "$api/sessions" -H "$json" -d '{"ttl_ms":5000,"ttl_ms":6000}'
bad 400 INVALID_ARGUMENT "trailing JSON" "$api/sessions" -H "$json" -d '{} {}'
bad 400 INVALID_ARGUMENT "an unknown field" "$api/sessions" -H "$json" -d '{"ttl":5}'
bad 400 INVALID_ARGUMENT "an unknown parameter" "$api/locks?x=1"
bad 400 INVALID_ARGUMENT "a page token that is none" "$api/locks?page_token=x"
bad 400 INVALID_NAME "a path that climbs" --path-as-is "$api/locks/a/../b"
# A holder who asks late still learns of a revocation, and repeating the call does not end anyone
# else's lock.
opened=$(post sessions '{"ttl_ms":60000}')
s3=$(jq -r .session <<<"$opened"); k3=$(jq -r .secret <<<"$opened")
try() { post "sessions/$s3/acquire" '{"secret":"'"$k3"'","spec":{"names":["'"$1"'"],"wait_ms":0}'"${2:-}"'}'; }
held=$(try billing/weekly ',"nonce":"n1"')
revocation='{"name":"billing/weekly","last_token":"'$(jq -r .claim.token <<<"$held")'","by":"ops","reason":"it hangs","now":true}'
[ "$(post revoke "$revocation" | jq .revoked)" = 1 ] || fail "not revoked"
for i in {1..70}; do
  claim=$(try "other/$i")
  post "sessions/$s3/release" '{"secret":"'"$k3"'","seq":"'"$(jq -r .claim.seq <<<"$claim")"'","token":"'"$(jq -r .claim.token <<<"$claim")"'"}' >/dev/null
done
post "sessions/$s2/acquire" '{"secret":"'"$k2"'","spec":{"names":["billing/weekly"],"wait_ms":0}}' >/dev/null
[ "$(post revoke "$revocation" | jq '.revoked // 0')" = 0 ] || fail "the repeated revocation hit the next holder"
post "sessions/$s3/keepalive" '{"secret":"'"$k3"'","seen":"0"}' | jq -e '.changes[0].state == "CLAIM_STATE_REVOKED"' >/dev/null || fail "the holder is not told"
try billing/weekly ',"nonce":"n1"' >"$work/again" 2>/dev/null && fail "the nonce was used twice: $(cat "$work/again")"
[ "$(jq -r .reason "$work/again")" = REVOKED ] || fail "the repeated nonce: $(cat "$work/again")"
post "sessions/$s3/close" '{"secret":"'"$k3"'"}' >/dev/null
say "70 claims later the holder is told of the revocation, and its nonce is known"

post "sessions/$s2/close" '{"secret":"'"$k2"'"}' >/dev/null
say "$count bad inputs were explained"

# The examples of docs/api.md as printed, except for the address and the endless watch.
page=$top/docs/api.md
blocks() { awk '/^```sh$/ {on = 1; next} /^```$/ {on = 0} on' "$page"; }
eval "$(blocks | sed "s#N=http://127.0.0.1:7402/v1#N=$api#")"
[ "$TOKEN" -gt 0 ] && [ "$gone" = 0 ] && [ "$SEEN" -ge 0 ] || fail "the example: token $TOKEN, gone $gone, seen $SEEN"
rows=0
while IFS= read -r row; do
  case $row in *'$N/watch'*) row="timeout 2 $row || true" ;; esac
  eval "$row" >"$work/row" || fail "$row: $(cat "$work/row")"
  case $(grep -oE '"reason":"[A-Z_]+"' "$work/row" | head -1) in
    '' | '"reason":"BUSY"') ;; # its own session holds the lock
    *) fail "$row: $(cat "$work/row")" ;;
  esac
  case $row in */acquire*nonce*) [ "$(jq -r .claim.seq "$work/row")" = "$SEQ" ] || fail "the nonce made another claim: $(cat "$work/row")" ;; esac
  rows=$((rows + 1))
done < <(sed -n 's/^| [A-Z][A-Za-z, 0-9]* | `\(curl .*\)` |$/\1/p' "$page")
[ "$rows" -ge 14 ] || fail "$rows examples in docs/api.md"
say "$rows examples of docs/api.md work as printed"

# the same over gRPC, using only reflection
cd "$top"
go_tests TestTheAPIDescribesItself ./server
say "the same over gRPC, by reflection"
