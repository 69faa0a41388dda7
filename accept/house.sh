#!/usr/bin/env bash
# the house rules hold, and planted violations are found; locktest and fencetest fail on planted bad backends and guards
. "$(dirname "$0")/lib.sh"
shown() { grep -E '^ *--- PASS' "$work/tests" | sed 's/^/   /'; }
go_tests . ./internal/house; shown
go_tests TestSuite ./locktest; shown
go_tests 'TestSuite|TestEachCheckCanFail' ./fencetest; shown
