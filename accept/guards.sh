#!/usr/bin/env bash
# fencetest passes for every guard on real servers, and fails on planted bad guards; psql itself reports that a token is stale
. "$(dirname "$0")/lib.sh"
# guarded NAME PACKAGE [PATTERN]: runs the conformance tests of a guard, and reports how many checks
# ran and which could not.
guarded() {
  go_tests "${3:-^TestConformance}" "$2" -timeout 15m
  local reports
  reports=$(grep -cE ' [0-9]+ checks ran:$' "$work/tests") || fail "$1: no report of fencetest"
  say "$1: $(grep -oE '[0-9]+ checks (ran|do not apply)' "$work/tests" | paste -sd, | sed 's/,/, /g') in $reports run(s)"
  grep -E ': (not implemented|the test cannot)' "$work/tests" | grep -v '\.go:' | sed 's/^ */      not: /' | sort -u || true
}
guarded file ./fence/filefence
guarded memory ./fence/httpfence TestConformanceWithMarksInMemory
guarded http ./fence/httpfence 'TestConformanceWith(DyingHandlers|MarksOnDisk)'
guarded postgres ./adapter/postgres/pgfence
guarded redis ./adapter/redis/redisfence
guarded etcd ./adapter/etcd/etcdfence
guarded s3 ./adapter/s3/s3fence
go_tests 'TestAStoreThatDoesNotKeepConditionsIsRefused' ./adapter/s3/s3fence
say "a store that does not keep the conditions of puts is refused: $(grep -cE '^ +--- PASS: .*/(ignores|looks)' "$work/tests") kinds"
go_tests 'TestSuiteFailsOnBadGuards|TestEachCheckCanFail' ./fencetest
say "fencetest fails on $(grep -cE '^ +--- PASS: TestSuiteFailsOnBadGuards/' "$work/tests") planted bad guards, and each of its checks can fail"
go_tests TestAStaleUpdateTypedInPsqlIsRefused ./adapter/postgres/pgfence
say "a stale UPDATE typed in psql is refused"
