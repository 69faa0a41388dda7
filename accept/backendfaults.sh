#!/usr/bin/env bash
# faults on the real servers of every backend: killed, frozen, cut off, failed over, pooled; every loss is reported, and no held lock leaks
. "$(dirname "$0")/lib.sh"
cd "$top"
for package in redis/redislock redis/redlock zookeeper/zklock etcd/etcdlock postgres/pglock; do
  if go test -count=1 -timeout 15m -v -skip 'Conform|KeepsTheContract' "./adapter/$package" >"$work/log" 2>&1; then
    say "$package: $(grep -c '^--- PASS' "$work/log") tests hold, $(grep -c '^--- SKIP' "$work/log") skipped"
    grep '^--- PASS' "$work/log" | sed 's/^--- PASS: /      /'
  else
    grep -E '^ *--- FAIL|\.go:[0-9]+:' "$work/log" | head -40
    fail "$package"
  fi
done
