#!/usr/bin/env bash
# a lock revoked while the holder's stream is broken: the holder stops believing in it after its next confirmed keepalive
. "$(dirname "$0")/lib.sh"
go_tests TestARevocationWhileTheStreamIsBroken ./sim/faulttest -count="${TRIES:-5}"
grep -E '^--- PASS|_test.go' "$work/tests" | sed 's/^/   /'
