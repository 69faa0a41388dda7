#!/usr/bin/env bash
# a lock revoked while the holder's stream is broken: the holder does not believe in it after its next confirmed keepalive
. "$(dirname "$0")/lib.sh"
cd "$top"
go test -count="${TRIES:-5}" -run TestARevocationWhileTheStreamIsBroken -v ./server/faulttest 2>&1 | grep -E '^(---|ok|FAIL|panic)|_test.go' || fail "revoked"
go test -count=1 -run TestARevocationWhileTheStreamIsBroken ./server/faulttest >/dev/null || fail "revoked"
