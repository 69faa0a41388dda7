#!/usr/bin/env bash
# nothing that a command starts outlives its lock: each way out of a process group, with run killed, revoked and frozen, 20 times each
. "$(dirname "$0")/lib.sh"
cluster_start 1
cd "$work"
tries=${TRIES:-20}
at_once=${AT_ONCE:-10}
job=job-$$
cat >$job <<'JOB'
#!/bin/sh
while :; do echo "$LOCKSTEP_TOKEN $(date +%s%N)" >>"$1"; sleep 0.2; done
JOB
chmod +x $job

# Each line starts ./JOB LOG in a way that leaves the process group of the command.
declare -A ways=(
  [timeout]="timeout 60 ./JOB LOG; true"
  [set-m]="bash -c 'set -m; ./JOB LOG & wait'"
  [setsid]="setsid ./JOB LOG & sleep 60"
  [nohup]="nohup ./JOB LOG >/dev/null 2>&1 & sleep 60"
  [double-fork]="(setsid sh -c '(./JOB LOG &)' &); sleep 60"
  [bash-i]="script -qec 'bash --norc -ic \"./JOB LOG\"' /dev/null </dev/null >/dev/null 2>&1"
  [scope]="systemd-run --scope -q ./JOB LOG"
)
command -v script >/dev/null || { unset 'ways[bash-i]'; say "bash -i is left out: there is no script(1)"; }
systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded' || { unset 'ways[scope]'; say "systemd-run --scope is left out: systemd does not run here"; }

once() { # WAY END I
  local name=contain/$1/$2/$3 log=$1.$2.$3.log holder="" again=0 next line
  line=${ways[$1]//LOG/$log}
  line=${line//JOB/$job}
  # A busy machine may lose the lock before the job has started: then nothing was tested yet.
  until [ -s "$log" ]; do
    if [ -z "$holder" ] || ! kill -0 "$holder" 2>/dev/null; then
      "$lockstep" run --ttl 2 --kill-after 0.3 "$name" -- sh -c "$line" >/dev/null 2>"$log.err" &
      holder=$!
    fi
    sleep 0.02
  done
  "$lockstep" run --ttl 2 "$name" -- timeout 1.5 ./$job "$log" >/dev/null 2>&1 &
  next=$!
  sleep 0.5
  case $2 in
    killed) kill -9 $holder ;;
    frozen) kill -STOP $holder ;;
    revoked) "$lockstep" revoke "$name" --reason accept >/dev/null ;;
  esac
  wait $next || true
  # On a busy machine the next holder may lose its own lock before it writes.
  while [ $again -lt 5 ] && awk 'NR == 1 { old = $1 } $1 > old { newer = 1 } END { exit newer }' "$log"; do
    again=$((again + 1))
    "$lockstep" run --ttl 2 "$name" -- timeout 1.5 ./$job "$log" >/dev/null 2>&1 || true
  done
  kill -9 $holder 2>/dev/null || true
  wait $holder 2>/dev/null || true
  # A line with the old token after the first one with the new token is a write concurrent with the
  # next holder.
  awk 'NR == 1 { old = $1 } $1 > old { new = 1 } new && $1 == old { late++ } END { print new + 0, late + 0 }' "$log" >"$log.verdict"
}

for end in killed frozen revoked; do
  for way in "${!ways[@]}"; do
    at=()
    for ((i = 1; i <= tries; i++)); do
      once "$way" $end "$i" 2>/dev/null & at+=($!)
      if [ ${#at[@]} -ge "$at_once" ]; then wait "${at[@]}"; at=(); fi
    done
    [ ${#at[@]} -eq 0 ] || wait "${at[@]}"
    good=$(cat "$way.$end".*.verdict | grep -c '^1 0$' || true)
    [ "$good" -eq "$tries" ] || { grep -L '^1 0$' "$way.$end".*.verdict | head -3; fail "$way, run $end: $good of $tries (next holder ran, late writes: $(sort "$way.$end".*.verdict | uniq -c | tr '\n' ';'))"; }
    say "$way, run $end: no write after the next holder's first, $good of $tries"
  done
done
! pgrep -f "\\./$job " >/dev/null || fail "jobs are left: $(pgrep -af "\\./$job " | head -3)"
say "no job is left"

# The command ignores and blocks the same signals as before, as with SIGPIPE under service managers.
signals() { env --ignore-signal=PIPE,HUP,TERM,USR1,CHLD,TSTP --block-signal=TERM,QUIT,USR2 "$@" grep -E '^Sig(Ign|Blk)' /proc/self/status; }
want=$(signals)
got=$(signals "$lockstep" run contain/signals --)
[ "$got" = "$want" ] || fail "ignored and blocked signals: $got, without run: $want"
say "ignored and blocked signals stay so in the command"
