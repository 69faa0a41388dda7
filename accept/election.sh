#!/usr/bin/env bash
# 8 candidates, leaders killed, frozen, cut off and resigned for 3 minutes, and the server's leader too: terms never overlap at the guarded resource, the next leader comes in time; 10,000 candidates on one name
. "$(dirname "$0")/lib.sh"
figures() { grep '_test.go' "$work/tests" | sed 's/.*_test.go:[0-9]*: /   /'; }
go_tests TestElectionsUnderFaults ./sim/faulttest -elections.for="${ELECTIONS_FOR:-3m}"
figures
go_tests TestACrowdOfCandidates ./sim/faulttest -crowd.size="${CROWD_SIZE:-10000}"
figures
