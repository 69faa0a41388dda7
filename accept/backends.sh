#!/usr/bin/env bash
# locktest passes for every backend on its real servers; shows what ran and what was declared unsupported
. "$(dirname "$0")/lib.sh"
cd "$top"
conformance='Conform|KeepsTheContract'
held() {
  local name=$1 package=$2
  go test -count=1 -timeout 15m -v -run "$conformance" "$package" >"$work/log" 2>&1 || { grep -E '^ *--- FAIL|_test.go|\.go:[0-9]+:' "$work/log" | head -40; fail "$name"; }
  local reports
  reports=$(grep -cE ' [0-9]+ checks ran:$' "$work/log") || fail "$name: no report of locktest: $(tail -3 "$work/log")"
  say "$name: $(grep -oE '[0-9]+ checks (ran|do not apply)' "$work/log" | paste -sd, ) in $reports run(s)"
  grep -E ': (declared unsupported|not implemented|the test cannot)' "$work/log" | sed 's/^ */      not: /' | sort -u
}
held memlock ./locktest
held lockstep ./sim/conformance
held redis ./adapter/redis/redislock
held redlock ./adapter/redis/redlock
held zookeeper ./adapter/zookeeper/zklock
held etcd ./adapter/etcd/etcdlock
held postgres ./adapter/postgres/pglock
"$lockstep" backends | sed -n 1,7p | while read -r line; do say "$line"; done
