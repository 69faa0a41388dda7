#!/usr/bin/env bash
# a cluster of an older build under load from old and new clients, replaced node by node, then upgraded: no error, no gap > 2 s; a build rolled back is refused
BASE_PORT=${BASE_PORT:-28100}
. "$(dirname "$0")/lib.sh"

old_commit=${OLD_COMMIT:-ed23b6c}
old=${OLD_BINARY:-$work/old/bin/lockstep} new=$lockstep
if [ -z "${OLD_BINARY:-}" ]; then
  mkdir -p "$work/old"
  git -C "$top" archive "$old_commit" | tar -x -C "$work/old" || fail "the history lacks $old_commit: fetch it, or name a build of it in OLD_BINARY"
  (cd "$work/old" && go build -o "$old" ./cmd/lockstep) || fail "$old_commit does not build"
fi
head -c 32 /dev/urandom | base64 >"$work/secret"
chmod 600 "$work/secret"
server_flags="--cluster-secret-file $work/secret"

level() { "$new" status --endpoints "$(endpoints)" -o json | jq -r .feature_level; }
load() { "$2" bench --workload free --workers 8 --duration "$seconds"s --prefix "load/$1" -o json >"$work/load-$1.json" 2>"$work/load-$1.err" & }
checked() { # NAME PID: no error, no gap
  wait "$2" || fail "load of the $1 client: $(cat "$work/load-$1.json" "$work/load-$1.err")"
  jq -e '.errors == 0 and .grants > 200 and .longest_gap_ms <= 2000' "$work/load-$1.json" >/dev/null || fail "load of the $1 client: $(cat "$work/load-$1.json")"
  say "$1 client: $(jq -r '"\(.grants) grants, \(.errors) errors, longest gap \(.longest_gap_ms | ceil) ms"' "$work/load-$1.json")"
}
# holding PLACE...: the files there that contain the secret of the kept lock: raw, in hexadecimal or
# in base64.
holding() { # once by lines and once by what ends with a zero byte: the secret can have either
  local by
  for by in -a -az; do LC_ALL=C grep -rlP "$by" -e "$raw|$hex|\\Q$base64\\E" "$@" 2>/dev/null || true; done | sort -u
}
# A lock acquired by the old client is released by the new one after the upgrade.
lockstep=$old cluster_start 3
"$old" acquire accept/kept --handle-file "$work/handle" --ttl 300s >"$work/acquired" || fail "acquire: $(cat "$work/acquired")"

base64=$(cut -d. -f2 "$work/handle" | tr -- '-_\n' '+/=' | jq -Rr '. + "=" * ((4 - length % 4) % 4) | @base64d | fromjson | .secret')
hex=$(base64 -d <<<"$base64" | od -An -v -tx1 | tr -d ' \n') raw=$(sed 's/../\\x&/g' <<<"$hex")
[ -n "$(holding "$work"/n[1-3])" ] || fail "void: the log of the old build has no secret"

seconds=${LOAD_SECONDS:-60}
began=$SECONDS
load old "$old"; old_load=$!
load new "$new"; new_load=$!
sleep 2
for i in 1 2 3; do
  if code=0 && "$new" upgrade >"$work/refused" 2>&1; then fail "upgraded with old members: $(cat "$work/refused")"; else code=$?; fi
  [ "$code" -eq 1 ] || fail "exit code $code: $(cat "$work/refused")"
  node_term $i
  node_start $i
  wait_members
done
say "refused before all nodes are new: $(head -n 1 "$work/refused" | cut -c1-200)"
[ "$(level)" = 1 ] || fail "level $(level) before the upgrade"
until "$new" upgrade --check >"$work/check" 2>&1; do [ $((SECONDS - began)) -lt "$seconds" ] || fail "$(cat "$work/check")"; sleep 0.3; done
"$new" upgrade >"$work/raised" || fail "upgrade: $(cat "$work/raised")"
say "$(head -n 1 "$work/raised")"
[ "$(level)" -ge 3 ] || fail "level $(level) after the upgrade"
sleep 2
[ $((SECONDS - began)) -lt "$seconds" ] || fail "void: the load of $seconds s ended before the upgrade"
checked old $old_load
checked new $new_load
deadline=$((SECONDS + 30))
while left=$(holding "$work"/n?) && [ -n "$left" ]; do [ $SECONDS -lt $deadline ] || fail "the secret is still in $left"; sleep 0.5; done
"$new" snapshot save "$work/backup" >/dev/null || fail "no backup"
for i in 1 2 3; do curl -s "http://127.0.0.1:$(($(client_port $i) + 2))/metrics" >"$work/metrics$i"; done
left=$(holding "$work/backup" "$work"/n?.log "$work"/metrics?)
[ -z "$left" ] || fail "the secret is in $left"
say "the secret of a session of before is in no file of the nodes, no backup, log or metric"
"$new" release --handle-file "$work/handle" >"$work/released" || fail "a session of before the rise: $(cat "$work/released")"

if grep -h 'peer refused' "$work"/n?.log | grep -qE 'belongs to (the )?cluster'; then fail "a peer was taken for one of another cluster: $(grep -h 'peer refused' "$work"/n?.log | head -n 3)"; fi

node_term 2
lines=$(wc -l <"$work/n2.log")
lockstep=$old node_start 2
deadline=$((SECONDS + 20))
while kill -0 "${pids[2]}" 2>/dev/null; do [ $SECONDS -lt $deadline ] || fail "the old build runs on a raised cluster's directory"; sleep 0.2; done
unset "pids[2]"
told=$(tail -n +$((lines + 1)) "$work/n2.log" | grep -o 'start the version that wrote it, or a newer one' | head -n 1) || fail "$(tail -n +$((lines + 1)) "$work/n2.log")"
say "rolled back: ends with \"$told\""
"$new" run accept/after -w 5 -- true || fail "two of three do not grant"
node_start 2
wait_members
