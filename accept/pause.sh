#!/usr/bin/env bash
# examples/pause: frozen, cut off and a change of leader, for the service with every store, and for every backend that a guard can go by with files
. "$(dirname "$0")/lib.sh"
stores=$("$top/bin/pause" --help | grep -oP 'where the accounts are: name, one of \K[a-z0-9, ]+' | tr -d ,)
backends=$("$top/bin/pause" --help | grep -oP 'where the locks are: name, one of \K[a-z0-9, ]+(?=, or)' | tr -d ,)
[ "$(wc -w <<<"$stores")" -eq 4 ] || fail "stores: $stores"
# The demo accepts exactly the backends that declare themselves Fenced.
fenced=$("$lockstep" backends -o json | jq -r '.[] | select(.fenced) | .scheme' | sort | xargs)
[ "$(xargs -n1 <<<"$backends" | sort | xargs)" = "$fenced" ] || fail "fenced are $fenced, shown are $backends"
show() {
  "$top/bin/pause" "$@" --svg "$work/picture.svg" >"$work/log" 2>&1 || { cat "$work/log"; fail "pause $*"; }
  [ "$(grep -c "B's 50 is lost, and nobody noticed" "$work/log")" -eq 3 ] || fail "$*: the unguarded account was not damaged three times"
  [ "$(grep -c 'token is older than one seen here' "$work/log")" -eq 3 ] || fail "$*: A was not refused three times"
  [ "$(grep -c 'is refused:' "$work/picture.svg")" -eq 3 ] || fail "$*: the picture shows no refusal"
  say "$*: $(tail -n 1 "$work/log" | xargs)"
}
for store in $stores; do show --store "$store"; done
for backend in $backends; do [ "$backend" = lockstep ] || show --backend "$backend"; done
