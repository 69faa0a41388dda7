#!/usr/bin/env bash
# every question of docs/faq.md has commands, and they work as they are printed
. "$(dirname "$0")/lib.sh"
# Other ports than those of the page, in case somebody follows it on this machine: each flag has its twin in the environment.
export LOCKSTEP_PORT=$BASE_PORT LOCKSTEP_ENDPOINTS=$host:$BASE_PORT
export PATH="${lockstep%/*}:$PATH"
limit=${BLOCK_LIMIT:-300} # seconds for a block; the first build of a test takes most

# Block n becomes the file n.sh, and its question n.q; the one before the first question starts a cluster.
mkdir "$work/blocks" "$work/folder"
awk -v dir="$work/blocks" '
  function unanswered() { if (question != start && blocks == 0) print question }
  BEGIN { question = start = "the cluster that the answers use" }
  !code && /^## / { unanswered(); question = substr($0, 4); blocks = 0; questions++ }
  /^```sh$/ { code = 1; n++; blocks++; print question >(dir "/" n ".q"); next }
  /^```/ { code = 0; next }
  code { print >(dir "/" n ".sh") }
  END { unanswered(); print n, questions >(dir "/count") }
' "$top/docs/faq.md" >"$work/unanswered"
[ ! -s "$work/unanswered" ] || fail "no command for: $(cat "$work/unanswered")"
read -r blocks questions <"$work/blocks/count"
[ "$questions" -ge 13 ] || fail "only $questions questions"

# timeout makes a process group of each block, which ends with this script: the cluster of the first block serves all others.
groups=()
on_exit+=('for group in "${groups[@]}"; do kill -9 -- "-$group" 2>/dev/null; done')
for ((i = 1; i <= blocks; i++)); do
  file=$work/blocks/$i.sh
  cd "$work/folder"
  ! grep -q '^go test' "$file" || cd "$top"
  begin=$(now_ms)
  timeout -k 5 "$limit" bash -e -o pipefail "$file" </dev/null >"$work/out" 2>&1 &
  groups+=($!)
  wait $! || { code=$?; tail -n 30 "$work/out"; fail "block $i, exit code $code (124: $limit s are over): $(cat "${file%.sh}.q")"; }
  ! grep -q 'no tests to run' "$work/out" || fail "block $i: no such test"
  say "$(($(now_ms) - begin)) ms: $(cat "${file%.sh}.q")"
done
say "$questions questions, $blocks blocks of commands"
