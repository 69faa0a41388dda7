#!/usr/bin/env bash
# make demo and make test exit 0, in-process tests with the race detector
. "$(dirname "$0")/lib.sh"
cd "$top"
make --no-print-directory test 2>&1 | grep -E '^==' ; [ "${PIPESTATUS[0]}" -eq 0 ] || fail "make test"
make --no-print-directory demo
