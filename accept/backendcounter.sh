#!/usr/bin/env bash
# 200 runs increment a file under the lock of each backend, while it suffers the faults that it claims to survive
. "$(dirname "$0")/lib.sh"
cd "$top"
COUNTER_RUNS=${COUNTER_RUNS:-200} go test -count=1 -timeout 20m -v -run TestTheCounterIsExactOnEveryBackend ./cmd/internal/backend >"$work/log" 2>&1 ||
  { grep -E '^ *--- FAIL|_test.go' "$work/log" | head -20; fail "the counter"; }
grep -E '_test.go|^    --- PASS' "$work/log" | sed 's/.*_test.go:[0-9]*: /      /; s/^    --- PASS: [^/]*\//   /'
