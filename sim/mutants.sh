#!/usr/bin/env bash
# Plants ten bugs, one by one, and has the simulator look for each. Prints which promise was
# broken, after how many seeds and seconds. Fails when one is not found within LIMIT seconds (120).
# One more needs an order of events that random runs do not come to: a test plays it.
set -uo pipefail
cd "$(dirname "$0")"
limit=${LIMIT:-120}
bugs=(
  "lifo        the queue is served last come, first served"
  "token       a token is used twice"
  "sync        an answer is given before the write is durable"
  "dedupe      a retry is taken for a new request"
  "round       a keepalive is answered without a quorum round"
  "forwarded   a round that another leader confirmed counts as one's own"
  "validuntil  the lease moves although a change was not seen"
  "forget      an ended claim is forgotten before its holder heard of it"
  "anew        every leader begins every lease anew"
  "unlogged    a keepalive is answered although the log says when the lease ends"
)
# planted BUG ARGUMENT...: runs go test with a bug in the packages that can have it.
planted() {
  local flags="" package
  for package in server/machine server/lead server/replica client/session; do
    flags+=" -X github.com/lockstep-dev/lockstep/$package.planted=$1"
  done
  go test -tags mutant -ldflags "$flags" -count=1 "${@:2}"
}
found=0
for bug in "${bugs[@]}"; do
  read -r tag what <<<"$bug"
  printf '%-12s%s\n' "$tag" "$what"
  if out=$(planted "$tag" -timeout "$((limit + 60))s" -run '^TestMutantIsFound$' -v . -mutant "$tag" -limit "${limit}s" 2>&1); then
    grep -oE '(found after|shrunk to) .*' <<<"$out" | cut -c1-400 | sed 's/^/            /'
    found=$((found + 1))
  else
    tail -n 20 <<<"$out" | sed 's/^/            /'
  fi
done
played='join        a keepalive joins a quorum round that is under way already'
bugs+=("$played")
read -r tag what <<<"$played"
printf '%-12s%s\n' "$tag" "$what"
test=TestARoundThatBeganBeforeAKeepAliveRenewsNothing
out=$(planted "$tag" -run "^$test\$" ../server/replica 2>&1)
if grep -q -- "^--- FAIL: $test" <<<"$out"; then
  echo "            found by $test"
  found=$((found + 1))
else
  echo "            NOT FOUND by $test"
fi
echo "$found of ${#bugs[@]} planted bugs found"
[ "$found" = "${#bugs[@]}" ]
