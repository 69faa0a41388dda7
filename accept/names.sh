#!/usr/bin/env bash
# 1,000,000 names acquired and released once: memory and snapshot return to their initial sizes within 10 %
. "$(dirname "$0")/lib.sh"
cd "$top"
go test -tags acceptance -count=1 -timeout 20m -run TestAMillionNames -v ./sim/faulttest 2>&1 | tee "$work/out" | grep -E '^(---|ok|FAIL|panic)|_test.go' || true
grep -q '^--- PASS: TestAMillionNames' "$work/out" || fail "names"
