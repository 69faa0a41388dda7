#!/usr/bin/env bash
# the rules of the house hold and see planted violations; locktest fails on planted bad backends
. "$(dirname "$0")/lib.sh"
cd "$top"
go test -count=1 -v ./internal/house 2>&1 | grep -E '^(---|    ---|ok|FAIL)' || fail "house"
go test -count=1 ./internal/house >/dev/null || fail "house"
go test -count=1 -run Planted -v ./locktest 2>&1 | grep -E '^(---|    ---|ok|FAIL)' || fail "locktest"
go test -count=1 -run Planted ./locktest >/dev/null || fail "locktest"
