#!/usr/bin/env bash
# Redlock, 2 of 5 masters down, 16 clients, 60 s of kills and restarts: no overlap; without persistence the double grant occurs, and the guard refuses the older holder
. "$(dirname "$0")/lib.sh"
go_tests TestKillsAndRestarts ./adapter/redis/redlock -kills.for="${KILLS_FOR:-60s}"
grep '_test.go' "$work/tests" | sed 's/.*_test.go:[0-9]*: /   /'
go_tests TestModel ./adapter/redis/redlock
say "the model of three masters keeps its promises, and each rule that is switched off is missed"
"$top/bin/redlock" >"$work/log" 2>&1 || { cat "$work/log"; fail "redlock"; }
grep -E 'Two holders|refused|passed, in' "$work/log" | sed 's/^ */   /'
