#!/usr/bin/env bash
# the recipes as printed, each with the lock free and busy: a cron line and a systemd timer on three hosts do the work once, a CI step waits for its turn
. "$(dirname "$0")/hosts.sh"
hosts_namespace "$@"
. "$(dirname "$0")/lib.sh"
hosts 3
host=127.0.0.1
cluster_start 3
# The addresses on the page stand for this cluster, which has its own ports.
recipe() { # HEADING KIND: the first block of this kind under the heading
  awk -v heading="## $1" -v kind="$2" '$0 == heading {on = 1} on && $0 == "```" kind {p = 1; next} /^```/ && p {exit} p' "$top/docs/recipes.md" |
    sed "s#10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400#$endpoints#"
}
endpoints=$LOCKSTEP_ENDPOINTS
unset LOCKSTEP_ENDPOINTS # each recipe sets it itself
cd "$work"
ask() { LOCKSTEP_ENDPOINTS=$endpoints "$lockstep" "$@"; }
hold() { # NAME: another holder has it
  LOCKSTEP_ENDPOINTS=$endpoints "$lockstep" hold "$1" >held & holder=$!
  until [ -s held ]; do sleep 0.05; done
}
let_go() { kill $holder; wait $holder || true; rm held; }
ran() { if [ -e ran ]; then wc -l <ran; else echo 0; fi; }

# The cron line, as cron runs it: the settings, then the command by sh, with almost no environment.
recipe "A cron job on several hosts that runs on one of them" text >cron.d
[ -s cron.d ] || fail "no cron line"
settings=$(grep -E '^[A-Z_]+=' cron.d)
line=$(grep -vE '^(#|[A-Z_]+=)' cron.d | awk '{for (i = 7; i <= NF; i++) printf "%s%s", $i, (i < NF ? " " : "")}')
[ "$(grep -vE '^(#|[A-Z_]+=)' cron.d | awk '{print $6}')" = root ] || fail "the sixth word is not the user: $(cat cron.d)"
printf '#!/bin/sh\necho %s >>%s/ran\n' cleanup "$work" >/usr/local/bin/cleanup
chmod +x /usr/local/bin/cleanup
cron() { env -i HOME=/root SHELL=/bin/sh PATH=/usr/bin:/bin "$settings" sh -c "$line" >cron-out 2>&1; }
cron & first=$!
sleep 1.2 # the clocks of the others are behind
for i in 2 3; do cron || fail "host $i fails: $(cat cron-out)"; sleep 0.3; done
[ "$(ran)" = 1 ] || fail "three hosts ran the job $(ran) times"
kill -INT $first 2>/dev/null; kill -INT $first 2>/dev/null; wait $first || true
say "cron: three hosts whose clocks differ by 1.5 s ran the job $(ran) time"
rm ran
ask revoke cron/cleanup --now --reason "the test goes on" >/dev/null 2>&1 || true
hold cron/cleanup
cron || fail "busy: exit code $?: $(cat cron-out)"
[ "$(ran)" = 0 ] || fail "busy: the job ran"
let_go
say "cron: busy, the job did not run, exit code 0"

# The timer: systemd accepts the files, and the ExecStart line is run.
for i in 1 2 3; do
  cp "$top"/deploy/systemd/lockstep-run@.* .
  printf '#!/bin/sh\necho nightly >>%s/ran\n' "$work" >nightly.sh
  recipe "A systemd timer" sh >timer.sh
  host $i bash -e timer.sh || fail "the steps of the timer fail"
done
printf '[Service]\nExecStart=/bin/true\nWrongKey=1\n' >planted.service
host 1 bash -c 'systemd-analyze verify --man=no ./planted.service' >verified 2>&1 || true
grep -q WrongKey verified || fail "systemd-analyze does not find a wrong key: $(cat verified)"
host 1 bash -c 'systemd-analyze verify --man=no lockstep-run@nightly.timer lockstep-run@nightly.service' >verified 2>&1 || true
! grep -E 'lockstep-run' verified | grep -v 'not found' || fail "systemd-analyze: $(cat verified)"
host 1 systemctl start lockstep-run@nightly >/dev/null 2>&1 & first=$!
sleep 1.2
for i in 2 3; do host $i systemctl start lockstep-run@nightly 2>start.err || fail "host $i fails: $(cat start.err)"; done
[ "$(ran)" = 1 ] || fail "three hosts ran the job $(ran) times"
wait $first || fail "the first host fails"
rm ran
hold jobs/nightly
host 1 systemctl start lockstep-run@nightly 2>start.err || fail "busy: $(cat start.err)"
[ "$(ran)" = 0 ] || fail "busy: the job ran"
let_go
say "systemd: three hosts ran the job once; busy, it did not run, and the service ended well"

# The CI step, from its yaml and from its line.
printf '#!/bin/sh\necho deploy >>%s/ran\n' "$work" >deploy.sh
chmod +x deploy.sh
recipe "A step in CI: one deployment at a time" yaml >step.yaml
step=$(sed -n 's/^  run: //p' step.yaml)
hosts_of_step=$(sed -n 's/^    LOCKSTEP_ENDPOINTS: //p' step.yaml)
[ -n "$step" ] && [ "$hosts_of_step" = "$endpoints" ] || fail "the step: $(cat step.yaml)"
for run in "$step" "$(recipe "A step in CI: one deployment at a time" sh)"; do
  rm -f ran
  LOCKSTEP_ENDPOINTS=$endpoints CI_JOB_URL=https://ci/1 bash -e -c "$run" || fail "free: exit code $?"
  [ "$(ran)" = 1 ] || fail "free: the deployment ran $(ran) times"
  rm ran
  hold deploy/production
  LOCKSTEP_ENDPOINTS=$endpoints CI_JOB_URL=https://ci/2 bash -e -c "$run" & waiting=$!
  until [ "$(ask show deploy/production -o json | jq .waiter_count)" = 1 ]; do sleep 0.1; done
  [ "$(ran)" = 0 ] || fail "busy: the deployment ran"
  let_go
  wait $waiting || fail "busy, then free: exit code $?"
  [ "$(ran)" = 1 ] || fail "busy, then free: the deployment ran $(ran) times"
  rm ran
  hold deploy/production
  code=0
  LOCKSTEP_ENDPOINTS=$endpoints CI_JOB_URL=https://ci/3 bash -e -c "${run/--wait 600/--wait 1}" 2>/dev/null || code=$?
  [ "$code" = 1 ] && [ "$(ran)" = 0 ] || fail "busy for too long: exit code $code, the deployment ran $(ran) times"
  let_go
done
say "CI: the step waits its turn, and fails with 1 when that takes too long"
