#!/usr/bin/env bash
# systemd-analyze accepts the units, the server's unit is confined, and a node under load makes no system call that it forbids
BASE_PORT=${BASE_PORT:-28400}
. "$(dirname "$0")/lib.sh"
command -v systemd-analyze >/dev/null || fail "no systemd-analyze: scripts/install-packages installs it"
mkdir "$work/units"
for unit in "$top"/deploy/systemd/*; do sed "s#/usr/local/bin/lockstep#$lockstep#" "$unit" >"$work/units/${unit##*/}"; done
cd "$work/units"
# Ignore the other units of this machine.
verify() { systemd-analyze verify --man=no "$@" 2>&1 | grep -E '^(\S*/)?lockstep' || true; }
wrong=$(verify lockstep.service lockstep-run@nightly.service lockstep-run@nightly.timer lockstep-elect@scheduler.service)
[ -z "$wrong" ] || fail "$wrong"
sed 's/^RemoveIPC=/RemoveIpc=/' lockstep.service >lockstep-wrong.service
[ -n "$(verify lockstep-wrong.service)" ] || fail "systemd-analyze finds no unknown key"
# has UNIT KEY=VALUE: the unit says it once, and nothing else for that key.
has() { [ "$(grep "^${2%%=*}=" "$1")" = "$2" ] || fail "$1 has $(grep "^${2%%=*}=" "$1" | xargs), want $2"; }
for unit in lockstep-run@.service lockstep-elect@.service; do has $unit KillMode=mixed; done # else a command gets TERM twice
has lockstep.service StartLimitIntervalSec=0                                                 # else a node whose disk is full for a minute stays down
has lockstep.service Restart=always
if (fail() { exit 1; }; has lockstep.service Restart=no); then fail "a wrong value passes"; fi
exposure=$(systemd-analyze security --offline=yes --no-pager lockstep.service | sed -n 's/.*exposure level for lockstep.service: \([0-9.]*\).*/\1/p')
awk -v e="$exposure" 'BEGIN {exit !(e != "" && e <= 2)}' || fail "the exposure of lockstep.service is $exposure, want 2 at most"
say "systemd-analyze: nothing wrong, exposure $exposure of 10"

# What SystemCallFilter= in the unit allows.
allowed() { systemd-analyze syscall-filter --no-pager "$1" | sed -n 's/^    *\([@a-z0-9_-]*\)$/\1/p' | while read -r word; do case $word in @*) allowed "$word" ;; *) echo "$word" ;; esac; done; }
filter=$(sed -n 's/^SystemCallFilter=//p' lockstep.service)
[ "$filter" = @system-service ] || fail "SystemCallFilter is $filter, and this script looks at @system-service"
allowed "$filter" | sort -u >"$work/allowed"
[ "$(wc -l <"$work/allowed")" -gt 200 ] || fail "only $(wc -l <"$work/allowed") calls are allowed"
NODE_PREFIX="strace -f -q -c -U name -o $work/calls"
server_flags="--audit-log $work/audit.log"
cluster_start 1
"$lockstep" bench --workers 16 --duration 3s >/dev/null
"$lockstep" snapshot save "$work/backup"
curl -s -o /dev/null "http://127.0.0.1:$((BASE_PORT + 2))/metrics"
kill -TERM "$(pgrep -P "${pids[1]}")" # strace ends with it
while kill -0 "${pids[1]}" 2>/dev/null; do sleep 0.05; done
grep -oE '^[a-z_0-9]+$' "$work/calls" | grep -vxE 'name|syscall|total' | sort -u >"$work/made"
[ "$(wc -l <"$work/made")" -gt 30 ] || fail "strace saw only $(xargs <"$work/made")"
forbidden=$(comm -23 "$work/made" "$work/allowed")
[ -z "$forbidden" ] || fail "the unit forbids $(xargs <<<"$forbidden")"
say "a node made $(wc -l <"$work/made") different system calls, all allowed"
