#!/usr/bin/env bash
# the real logrotate moves or truncates the audit logs of nodes under load, in four configurations: no node ends, each restarts, no event is lost
BASE_PORT=${BASE_PORT:-28500}
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin
command -v logrotate >/dev/null || fail "no logrotate: scripts/install-packages installs it"
eval "plain_$(declare -f node_start)"
node_start() { export LOCKSTEP_AUDIT_LOG=$work/log-$1/audit.log; mkdir -p "$work/log-$1"; plain_node_start "$1"; unset LOCKSTEP_AUDIT_LOG; }

# The shipped file, adapted to the paths and the user of this test; the others differ in what people
# change.
# The HUP of the unit reaches the node through this substitute for systemctl.
mkdir "$work/bin"
cat >"$work/bin/systemctl" <<'END'
#!/bin/sh
[ "$*" = "kill --signal=HUP --kill-whom=main lockstep.service" ] && kill -HUP "$(cat pid)"
END
chmod +x "$work/bin/systemctl"
shipped() { sed "s#/var/log/lockstep/#$work/log-1/#; s#su lockstep lockstep#su $(id -un) $(id -gn)#" "$top/deploy/logrotate/lockstep"; }
plainly() { printf '%s {\n su %s %s\n rotate 99\n dateext\n dateformat -%%s\n %s\n}\n' "$work/log-$1/audit.log" "$(id -un)" "$(id -gn)" "$2"; }
cluster_start 4
cd "$work"
shipped >rotate-1
plainly 2 'copytruncate' >rotate-2
plainly 3 'create 0600
 compress' >rotate-3
plainly 4 'nocreate
 nodelaycompress
 compress
 postrotate
  kill -HUP $(cat pid)
 endscript' >rotate-4
chmod 0600 rotate-*

"$lockstep" bench --workers 16 --duration "${SECONDS_OF_LOAD:-12}s" -o json >bench.json & load=$!
for round in 1 2 3; do
  sleep 3
  for i in 1 2 3 4; do
    echo "${pids[$i]}" >pid
    PATH=$work/bin:$PATH logrotate --force --state "$work/state-$i" "rotate-$i" >"logrotate-$i.out" 2>&1 || fail "logrotate $i: $(cat "logrotate-$i.out")"
  done
done
wait $load || fail "bench: $(cat bench.json)"
for i in 1 2 3 4; do
  kill -0 "${pids[$i]}" 2>/dev/null || fail "n$i has ended: $(tail -n 3 "n$i.log")"
  grep -q 'cannot write the audit log' "n$i.log" && fail "n$i: $(grep 'cannot write the audit log' "n$i.log" | head -1)"
done
say "3 rotations of 4 audit logs under load: all nodes run"
for i in 1 2 3 4; do node_term "$i"; node_start "$i"; done
wait_serving
wait_members
"$lockstep" run rotated/last -- true
sleep 1.5
# All files of a node in order of time, each event once: copytruncate repeats the last seconds.
all() { for f in $(ls -tr "$work/log-$1"/audit.log*); do case $f in *.gz) zcat "$f" ;; *) cat "$f" ;; esac; done | grep -av '^{"audit"'; }
for i in 1 2 3 4; do
  files=$(find "log-$i" -name 'audit.log*' | wc -l)
  [ "$files" -ge 4 ] || fail "n$i has $files files"
  all "$i" >"lines-$i"
  grep -qa missing_from "lines-$i" && fail "n$i: $(grep -a missing_from "lines-$i" | head -1)"
  [ "$(jq -r '.number' "lines-$i" | sort -nu | awk '$1 != NR {bad = 1} END {print (bad ? "gap" : NR)}')" = "$("$lockstep" history rotated/last --limit 1000 -o json | jq '[.events[].number] | max')" ] ||
    fail "n$i lacks events: $(jq -r .number "lines-$i" | sort -nu | awk '$1 != NR {print "after", NR - 1; exit}')"
  say "n$i: $files files, $(jq -r .number "lines-$i" | sort -nu | wc -l) events, $(wc -l <"lines-$i") lines"
done
for i in 1 3 4; do [ "$(wc -l <"lines-$i")" = "$(jq -r .number "lines-$i" | sort -nu | wc -l)" ] || fail "n$i wrote events twice"; done
