#!/usr/bin/env bash
# bench against five server processes: free with 1, 64 and 1,024 workers, hot with 64
. "$(dirname "$0")/lib.sh"
cluster_start 5
declare -A prototype=([free-1]=300 [free-64]=5600 [free-1024]=23700 [hot-64]=410)
slow=()
for what in free-1 free-64 free-1024 hot-64; do
  "$lockstep" bench --workload "${what%-*}" --workers "${what#*-}" --duration "${DURATION:-10s}" -o json >"$work/$what.json" || fail "$what: $(cat "$work/$what.json")"
  jq -e '.errors == 0 and .token_regressions == 0' "$work/$what.json" >/dev/null || fail "$what: $(cat "$work/$what.json")"
  rate=$(jq '.grants_per_second | floor' "$work/$what.json")
  say "$what: $rate grants/s, p50 $(jq '.p50_ms' "$work/$what.json") ms, p99 $(jq '.p99_ms' "$work/$what.json") ms, max $(jq '.max_ms' "$work/$what.json") ms; bare prototype ${prototype[$what]}/s"
  [ $((rate * 2)) -ge "${prototype[$what]}" ] || slow+=("$what")
done
[ ${#slow[@]} -eq 0 ] || fail "less than half of the bare prototype: ${slow[*]}"
