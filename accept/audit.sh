#!/usr/bin/env bash
# audit logs of all nodes agree event by event after kills and a catch-up from a snapshot that no longer has all events, and record the end of each grant and its reason
. "$(dirname "$0")/lib.sh"
SECONDS_OF_LOAD=${SECONDS_OF_LOAD:-15}
server_flags="$server_flags --audit-log-bytes 8388608 --audit-log-files 9999"

# Each node has its own file: the environment variable of the flag sets it.
eval "plain_$(declare -f node_start)"
node_start() { export LOCKSTEP_AUDIT_LOG=$work/audit-$1.log; plain_node_start "$1"; unset LOCKSTEP_AUDIT_LOG; }

# lines I: all lines of a node except the headers, oldest first.
lines() {
  local n
  for n in $(ls "$work/audit-$1.log".* 2>/dev/null | sed 's/.*\.//' | sort -rn); do cat "$work/audit-$1.log.$n"; done | grep -v '^{"audit"' || true
  grep -v '^{"audit"' "$work/audit-$1.log" || true
}
last() { tail -n 1 "$work/audit-$1.log" | jq -r '.number // .missing_to // (.next - 1)'; }
metric() { curl -s -m 2 "http://127.0.0.1:$(($(client_port "$1") + 2))/metrics" | awk -v name="$2" '$1 == name {printf "%.0f\n", $2}'; }
applied_alike() { # waits until all nodes have written the same last event
  local deadline=$((SECONDS + 120)) i all
  while :; do
    sleep 1.5 # the file is written at once, and synced every second
    all=$(for ((i = 1; i <= nodes; i++)); do last "$i"; done | sort -u)
    [ "$(wc -l <<<"$all")" = 1 ] && return
    [ $SECONDS -lt $deadline ] || fail "the last events differ: $all"
  done
}

cluster_start 5
cd "$work"
# Long names make the log grow, so that the node that is down needs a snapshot.
prefix=audit/$(head -c 480 /dev/zero | tr '\0' x)
lead=$(leader)
away=$((lead % 5 + 1)) other=$(((lead + 1) % 5 + 1))
"$lockstep" bench --prefix "$prefix" --workers 16 --duration "${SECONDS_OF_LOAD}s" -o json >bench-0.json & load=$!
sleep 2
node_kill "$away"
say "n$away killed, and stays away"
"$lockstep" run --ttl 60s audit/revoked -- sleep 1000 2>revoked.err & revoked=$!
"$lockstep" run --ttl 2s audit/dead -- sleep 1000 2>dead.err & dead=$!
for name in revoked dead; do until [ "$("$lockstep" show audit/$name -o json | jq '.holders | length')" = 1 ]; do sleep 0.1; done; done
"$lockstep" revoke audit/revoked --reason "planned work" >/dev/null
{ kill -9 $dead; wait $dead; } 2>/dev/null || true
sleep 2
node_kill "$lead"; sleep 1; node_start "$lead"
say "leader n$lead killed and started again"
sleep 3
node_kill "$other"; sleep 1; node_start "$other"
say "n$other killed and started again"
wait $load || fail "bench: $(cat bench-0.json)"
wait $revoked 2>/dev/null || true
# The others write snapshots and drop the part of the log that n$away would need, and the history in
# the snapshots starts after what n$away has: an event includes at least the 480 bytes of its name,
# and the history is 32 MiB.
stopped_at=$(last "$away")
forgotten=$((stopped_at + 150000))
for round in $(seq 40); do
  written=$(for i in 1 2 3 4 5; do [ "$i" = "$away" ] || ! grep -q 'snapshot written' "n$i.log" || echo "$i"; done | wc -l)
  [ "$written" -lt 4 ] || [ "$(last "$lead")" -lt "$forgotten" ] || break
  "$lockstep" bench --prefix "$prefix" --workers 256 --duration "${SECONDS_OF_LOAD}s" -o json >"bench-$round.json" || fail "bench: $(cat "bench-$round.json")"
done
[ "$(last "$lead")" -ge "$forgotten" ] || fail "only $(($(last "$lead") - stopped_at)) events while n$away was away"
"$lockstep" bench --prefix "$prefix" --workers 64 --duration "${SECONDS_OF_LOAD}s" -o json >bench-back.json & load=$!
sleep 1
node_start "$away"
deadline=$((SECONDS + 60))
until before=$(metric "$away" lockstep_audit_fetched_events_total) && [ "${before:-0}" -gt 0 ]; do
  [ $SECONDS -lt $deadline ] || fail "n$away asks nobody for events"
  sleep 0.05
done
wanted=$(metric "$away" lockstep_audit_wanted_events)
node_kill "$away"
say "n$away killed again after it had fetched $before events, and wanted $wanted more"
node_start "$away"
wait_members
wait $load || fail "bench: $(cat bench-back.json)"
applied_alike
grep -q 'snapshot received' "n$away.log" || fail "n$away needed no snapshot"
fetched=$((before + $(metric "$away" lockstep_audit_fetched_events_total)))
for i in 1 2 3 4 5; do
  for what in missing_events_total wanted_events errors_total; do
    [ "$(metric "$i" lockstep_audit_$what)" = 0 ] || fail "n$i: lockstep_audit_$what is $(metric "$i" lockstep_audit_$what)"
  done
done
say "n$away came back under load by a snapshot: its file ended at event $stopped_at, and $fetched events came from its peers' files"

for i in 1 2 3 4 5; do lines "$i" >"lines-$i"; done
reference=lines-$lead
jq -r .number "$reference" | awk '$1 != NR {print "line " NR " is of event " $1; exit 1}' || fail "n$lead's file has a gap"
for i in 1 2 3 4 5; do cmp "$reference" "lines-$i" || fail "the files of n$lead and n$i differ"; done
say "$(wc -l <"$reference") events, all from the first to the last, the same in all five files"

# Every grant has an end.
jq -r 'select(.token) | [.kind, .name, .session, .seq] | @tsv' "$reference" |
  awk -F'\t' '{k = $2 FS $3 FS $4} $1 == "granted" {open[k]++; grants++; next} {delete open[k]}
    END {for (k in open) {print "no end: " k; bad = 1} print grants " grants" > "grants"; exit bad}' || fail "a grant has no end"
jq -e -s 'any(.kind == "revoked" and .name == "audit/revoked" and .reason == "planned work" and .by != null)' <(grep audit/revoked "$reference") >/dev/null || fail "the revocation is not told"
jq -e -s 'any(.kind == "expired" and .name == "audit/dead")' <(grep audit/dead "$reference") >/dev/null || fail "the dead holder's end is not told"
"$lockstep" history audit/revoked -o json | jq -e '.events | any(.kind == "revoked" and .reason == "planned work" and (.by | length) > 0)' >/dev/null || fail "history does not tell who revoked"
say "$(cat grants), each with its end; the revocation with its reason"
