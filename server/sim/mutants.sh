#!/usr/bin/env bash
# Plants eight bugs, one by one, and has the simulator look for each. Prints which promise was
# broken, after how many seeds and seconds. Fails when one is not found within LIMIT seconds (120).
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
)
found=0
for bug in "${bugs[@]}"; do
  read -r tag what <<<"$bug"
  printf '%-12s%s\n' "$tag" "$what"
  if out=$(go test -tags "mutant_$tag" -count=1 -timeout "$((limit + 60))s" -run '^TestMutantIsFound$' -v . -mutant "$tag" -limit "${limit}s" 2>&1); then
    grep -oE '(found after|shrunk to) .*' <<<"$out" | cut -c1-400 | sed 's/^/            /'
    found=$((found + 1))
  else
    tail -n 20 <<<"$out" | sed 's/^/            /'
  fi
done
echo "$found of ${#bugs[@]} planted bugs found"
[ "$found" = "${#bugs[@]}" ]
