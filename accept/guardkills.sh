#!/usr/bin/env bash
# kill -9 of a writer at 200 random moments during its guarded writes: readers always see one complete version, and the token never decreases
. "$(dirname "$0")/lib.sh"
export LOCKSTEP_TEST_KILLS=${KILLS:-200}
killed() {
  go_tests TestKilledWriters "$2" -timeout 15m
  say "$1: $(grep -oE '[0-9]+ of [0-9]+ kills were in the middle of a write.*' "$work/tests")"
}
killed files ./fence/filefence
killed s3 ./adapter/s3/s3fence
