#!/usr/bin/env bash
# how fast each backend grants locks, compared on this machine
. "$(dirname "$0")/lib.sh"
cd "$top"
go test -count=1 -timeout 20m -run '^$' -bench BenchmarkBackends -benchtime 1x ./cmd/internal/backend >"$work/log" 2>&1 || { tail -n 30 "$work/log"; fail "BenchmarkBackends"; }
grep '^BenchmarkBackends/' "$work/log" | sed -E 's/^BenchmarkBackends\///; s/-[0-9]+ +1//; s/ +0 ns\/op//; s/^/   /'
