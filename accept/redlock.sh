#!/usr/bin/env bash
# Redlock, 2 of 5 masters down, 16 clients, 60 s of kills and restarts: no overlap; without persistence the double grant shows, and the guard refuses the older holder
. "$(dirname "$0")/lib.sh"
cd "$top"
go test -count=1 -v -run TestKillsAndRestarts ./adapter/redis/redlock -args -kills.for="${KILLS_FOR:-60s}" >"$work/log" 2>&1 || { grep -E 'FAIL|_test.go' "$work/log" | head -20; fail "TestKillsAndRestarts"; }
grep '_test.go' "$work/log" | sed 's/.*_test.go:[0-9]*: /   /'
go test -count=1 -run 'TestModel' ./adapter/redis/redlock >"$work/log" 2>&1 || fail "the model: $(tail -20 "$work/log")"
say "the model of three masters keeps its promises, and each rule that is switched off is missed"
"$lockstep" demo redlock >"$work/log" 2>&1 || { cat "$work/log"; fail "demo redlock"; }
grep -E 'Two holders|refused|held, in' "$work/log" | sed 's/^ */   /'
