#!/usr/bin/env bash
# audit logs of all nodes agree event for event after kills and a snapshot catch-up, and tell each grant's end and reason
. "$(dirname "$0")/lib.sh"
SECONDS_OF_LOAD=${SECONDS_OF_LOAD:-15}
server_flags="$server_flags --audit-log-bytes 8388608 --audit-log-files 9999"

# Each node has a file of its own: the flag's twin in the environment names it.
eval "plain_$(declare -f node_start)"
node_start() { export LOCKSTEP_AUDIT_LOG=$work/audit-$1.log; plain_node_start "$1"; unset LOCKSTEP_AUDIT_LOG; }

# lines I: all lines of a node but the headers, the oldest first.
lines() {
  local n
  for n in $(ls "$work/audit-$1.log".* 2>/dev/null | sed 's/.*\.//' | sort -rn); do cat "$work/audit-$1.log.$n"; done | grep -v '^{"audit"' || true
  grep -v '^{"audit"' "$work/audit-$1.log" || true
}
last() { tail -n 1 "$work/audit-$1.log" | jq -r '.number // .missing_to // (.next - 1)'; }
applied_alike() { # waits until all nodes have written the same last event
  local deadline=$((SECONDS + 60)) i all
  while :; do
    sleep 1.5 # a file is written at once, and synced each second
    all=$(for ((i = 1; i <= nodes; i++)); do last "$i"; done | sort -u)
    [ "$(wc -l <<<"$all")" = 1 ] && return
    [ $SECONDS -lt $deadline ] || fail "the last events differ: $all"
  done
}

cluster_start 5
cd "$work"
# Long names make the log grow, so that the node that is away needs a snapshot.
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
# The others write snapshots and let go of the log that n$away would need.
for round in $(seq 40); do
  written=$(for i in 1 2 3 4 5; do [ "$i" = "$away" ] || ! grep -q 'snapshot written' "n$i.log" || echo "$i"; done | wc -l)
  [ "$written" -lt 4 ] || break
  "$lockstep" bench --prefix "$prefix" --workers 256 --duration "${SECONDS_OF_LOAD}s" -o json >"bench-$round.json" || fail "bench: $(cat "bench-$round.json")"
done
node_start "$away"
wait_members
applied_alike
grep -q 'snapshot received' "n$away.log" || fail "n$away needed no snapshot"
say "n$away came back by a snapshot"

for i in 1 2 3 4 5; do lines "$i" >"lines-$i"; done
reference=lines-$lead
jq -r .number "$reference" | awk '$1 != NR {print "event " $1 " on line " NR; exit 1}' || fail "n$lead's file has a gap"
for i in 1 2 3 4 5; do
  [ "$i" = "$away" ] || cmp "$reference" "lines-$i" || fail "the files of n$lead and n$i differ"
done
# What n$away has is what the others have; what it lacks, it says.
jq -r 'select(.missing_from) | "\(.missing_from) \(.missing_to)"' "lines-$away" >gaps
awk 'NR == FNR {from[NR] = $1; to[NR] = $2; n = NR; next} {for (i = 1; i <= n; i++) if (FNR >= from[i] && FNR <= to[i]) next; print}' \
  gaps "$reference" >expected
[ -s gaps ] || cp "$reference" expected
grep -v '^{"missing_from"' "lines-$away" | cmp - expected || fail "n$away's file is not that of the others but for the gaps that it tells"
say "$(wc -l <"$reference") events, the same in all files; n$away says that it lacks $(awk '{n += $2 - $1 + 1} END {print n + 0}' gaps) of them, which no snapshot had any more"

# Every grant has its end.
jq -r 'select(.token) | [.kind, .name, .session, .seq] | @tsv' "$reference" |
  awk -F'\t' '{k = $2 FS $3 FS $4} $1 == "granted" {open[k]++; grants++; next} {delete open[k]}
    END {for (k in open) {print "no end: " k; bad = 1} print grants " grants" > "grants"; exit bad}' || fail "a grant has no end"
jq -e -s 'any(.kind == "revoked" and .name == "audit/revoked" and .reason == "planned work" and .by != null)' <(grep audit/revoked "$reference") >/dev/null || fail "the revocation is not told"
jq -e -s 'any(.kind == "expired" and .name == "audit/dead")' <(grep audit/dead "$reference") >/dev/null || fail "the dead holder's end is not told"
"$lockstep" history audit/revoked -o json | jq -e '.events | any(.kind == "revoked" and .reason == "planned work" and (.by | length) > 0)' >/dev/null || fail "history does not tell who revoked"
say "$(cat grants), each with its end; the revocation with its reason"
