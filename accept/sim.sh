#!/usr/bin/env bash
# the simulator finds nothing in 300 seeds, and the same seed gives the same hash
. "$(dirname "$0")/lib.sh"
"$lockstep" sim --seeds "${SEEDS:-300}" --seed "${SEED:-1000}" -o json >"$work/sim.json" || fail "$(cat "$work/sim.json")"
say "$(jq -c 'del(.counters)' "$work/sim.json")"
one=$("$lockstep" sim --seeds 3 --seed 7 -o json | jq -r .trace_hash)
two=$("$lockstep" sim --seeds 3 --seed 7 -o json | jq -r .trace_hash)
[ -n "$one" ] && [ "$one" = "$two" ] || fail "hashes $one and $two"
say "seeds 7 to 9 give $one twice"
