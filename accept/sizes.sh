#!/usr/bin/env bash
# 20,000 locks of 10 sessions and 2,000 waiters on one name: ls pages, show lists in order, restart from snapshot < 5 s
. "$(dirname "$0")/lib.sh"
cd "$top"
go test -tags acceptance -count=1 -timeout 10m -run TestManyLocksAndWaiters -v ./sim/faulttest 2>&1 | tee "$work/out" | grep -E '^(---|ok|FAIL|panic)|_test.go' || true
grep -q '^--- PASS: TestManyLocksAndWaiters' "$work/out" || fail "sizes"
