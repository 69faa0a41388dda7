#!/usr/bin/env bash
# strangers on the peer port of three processes: forged messages, silent connections, false identities, guesses and weak secrets; the cluster keeps granting, restarts, and has counted each attack
# Attacks on the client and HTTP ports are in exhaustion.sh.
. "$(dirname "$0")/lib.sh"
attacks() { # PATTERN [FLAG...]
  go_tests "$1" ./sim/faulttest "${@:2}"
  grep -E '^--- PASS|_test.go' "$work/tests" | sed 's/^ *strangers_test.go:[0-9]*: //; s/^/   /'
}
attacks 'TestStrangersOnThePeerPort|TestAStrangerWhoComesFirst|TestAClusterWithoutAGoodSecret' -strangers.back=5s

# A directory whose term was set by a forged message, under a build that accepted it, says what to
# do.
go_tests TestALogBeyondTheLastTerm ./server/node
say "a log beyond the last term names its directory and the way out"

# The same with an operator's commands.
"$lockstep" keygen secret "$work/made"
[ "$(stat -c %a "$work/made")" = 600 ] || fail "the secret has mode $(stat -c %a "$work/made")"
if "$lockstep" keygen secret "$work/made" 2>"$work/err"; then fail "a secret was written over"; fi
grep -q 'never overwritten' "$work/err" || fail "$(cat "$work/err")"
refused() { # WORDS COMMAND...
  local words=$1 code=0
  shift
  "$@" 2>"$work/err" >&2 || code=$?
  [ $code = 64 ] || fail "exit code $code, want 64: $*: $(cat "$work/err")"
  grep -q -- "$words" "$work/err" || fail "$(cat "$work/err")"
}
server=("$lockstep" server --name n1 --data-dir "$work/refused" --insecure)
two=(--initial-cluster "n1=127.0.0.1:7401,n2=127.0.0.1:7411")
printf x >"$work/short"; chmod 600 "$work/short"
refused 'at least 32' "${server[@]}" "${two[@]}" --cluster-secret-file "$work/short"
chmod 644 "$work/made"
refused 'chmod 600' "${server[@]}" "${two[@]}" --cluster-secret-file "$work/made"
unset LOCKSTEP_CLUSTER_SECRET_FILE
refused '--cluster-secret-file: is required' "${server[@]}" "${two[@]}"
refused '--cluster-secret-file: is required' "${server[@]}" --peer-listen 0.0.0.0:7401 --initial-cluster n1=127.0.0.1:7401
say "no secret, a short one and one that all may read: refused with exit code 64"
