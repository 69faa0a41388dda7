#!/usr/bin/env bash
# every command in README, docs and the others works as printed, on separate machines, with the lock free; no work is done without the lock, when it is busy or the service is unavailable
. "$(dirname "$0")/hosts.sh"
hosts_namespace "$@"
. "$(dirname "$0")/lib.sh"
# QUICK=1 skips slow blocks. PAGES names some pages, relative to the repository root.
limit=${BLOCK_LIMIT:-300} # seconds for a block; the first build of a test takes the longest
# Pages that change the cluster come last.
pages=${PAGES:-$(cd "$top" && git ls-files -- '*.md' ':!docs/adr' | sort -t/ -k2 | awk '/operations/ {last = last $0 "\n"; next} {print} END {printf "%s", last}')}
# The number of blocks marked as not run here. Lower it when one is run after all; raise it only
# with a reason in the page.
not_run=8

# A block ```sh of a page becomes blocks/PAGE/N.sh. Comments directly above it say how to run it,
# and go to N.how:
#   <!-- not run: REASON -->
#   <!-- slow -->              skipped in a quick run
#   <!-- on N -->              on machine N instead of the reader's own, with its /etc and /var
#   <!-- each of N -->         on machines 1 to N in turn, with the name and the address of each
#   <!-- fresh -->             after everything that earlier blocks left running has ended
#   <!-- top -->               in the root of the repository
#   <!-- before: COMMANDS -->  what the reader has done before, as described in the text
#   <!-- after: COMMANDS -->   what must hold afterwards, on the reader's machine
# A block ```yaml whose first line is a comment with a path becomes that file, if it names a
# machine.
# In a page, <!-- cluster: none --> says that its blocks start their own cluster, and a number N
# that it needs N nodes; the other pages share a cluster of five.
extract() { # PAGE DIRECTORY
  awk -v dir="$2" '
    /^ *<!-- .* -->$/ { text = $0; sub(/^ *<!-- /, "", text); sub(/ -->$/, "", text); how = how text "\n"; if (text ~ /^cluster: /) { print substr(text, 10) >(dir "/cluster"); how = "" } next }
    /^ *```/ {
      if (code) { if (file) print "END" >(dir "/" n ".sh"); file = code = 0; how = ""; next }
      kind = $0; sub(/^ *```/, "", kind); code = 1
      if (kind !~ /^(sh|go|json|yaml|sql|text)$/) { print "line " NR ": a block of kind \"" kind "\"" >(dir "/wrong") }
      indent = match($0, /`/) - 1
      if (kind == "yaml" && how ~ /(on|each of) [0-9]/) { kind = "sh"; file = 1 }
      if (kind == "sh") { n++; printf "%s", how >(dir "/" n ".how"); print NR >(dir "/" n ".line") }
      how = ""; next
    }
    file == 1 { print "cat >" $2 " <<\047END\047" >(dir "/" n ".sh"); file = 2 }
    code && kind == "sh" { print substr($0, indent + 1) >(dir "/" n ".sh") }
    !code && !/^ *$/ { how = "" }
    /^## / && dir ~ /faq.md$/ { if (n == asked && question) print question >(dir "/unanswered"); question = substr($0, 4); asked = n }
    END { print n + 0 >(dir "/count") }
  ' "$top/$1"
}

mkdir "$work/blocks"
total=0 skipped=0
for page in $pages; do
  [ -e "$top/$page" ] || continue
  dir=$work/blocks/$page
  mkdir -p "$dir"
  extract "$page" "$dir"
  [ ! -e "$dir/wrong" ] || fail "$page: $(cat "$dir/wrong")"
  [ ! -e "$dir/unanswered" ] || fail "$page: no command for: $(cat "$dir/unanswered")"
  total=$((total + $(cat "$dir/count")))
  skipped=$((skipped + $(cat "$dir"/*.how 2>/dev/null | grep -c '^not run: ' || true)))
done
[ -n "${PAGES:-}" ] || [ "$skipped" = $not_run ] || fail "$skipped blocks are said not to run here, not $not_run: $(grep -h '^not run: ' -r "$work/blocks")"

# A variable that a page sets in one block and uses in the next is not an error, nor is a deliberate
# use of a shell feature.
if command -v shellcheck >/dev/null; then
  find "$work/blocks" -name '*.sh' -print0 | sort -z |
    xargs -0 -r shellcheck -s bash -S warning -e SC2034,SC2154,SC2164,SC1090,SC2024,SC2046 >"$work/shellcheck" || { cat "$work/shellcheck"; fail "shellcheck"; }
  say "shellcheck finds nothing in $total blocks"
else
  fail "no shellcheck: scripts/install-packages installs it"
fi

hosts 7
unset LOCKSTEP_CLUSTER_SECRET_FILE # set by lib.sh: the pages set it themselves
real=$lockstep
export TOP=$top SECRET=$work/secret
printf '#!/bin/sh\nexec /usr/bin/make -C "%s" "$@"\n' "$top" >"$work/bin/make"
chmod +x "$work/bin/make"
# Commands that only ctrl-C ends get one after three seconds; a server runs in the background.
cat >"$work/bin/lockstep" <<END
#!/usr/bin/env bash
case "\$*" in
  watch* | top* | "hold "* | elect\ --observe*)
    case "\$*" in *"> "* | *--limit* | top*json*) ;; *)
      [ -z "\${ENDLESS:-}" ] || exec "$real" "\$@"
      timeout -s INT 3 "$real" "\$@"; code=\$?
      [ \$code != 124 ] || code=0
      exit \$code ;;
    esac ;;
  "server "*)
    case "\$*" in *--print-config* | *--help*) ;; *)
      [ -z "\${ON_HOST:-}" ] || { setsid "$real" "\$@" >>/var/log/server.journal 2>&1 </dev/null & echo \$! >/run/server.pid; exit 0; } ;;
    esac ;;
esac
exec "$real" "\$@"
END
chmod +x "$work/bin/lockstep"
# nodes stop|start|wipe|fresh I: what a page describes in its text.
cat >"$work/bin/nodes" <<END
#!/usr/bin/env bash
for file in "$work/host-\$2"/run/*.pid; do [ -e "\$file" ] || continue; kill -9 -- "-\$(cat "\$file")" 2>/dev/null; rm -f "\$file"; done
case \$1 in wipe) rm -rf "$work/host-\$2"/lib/lockstep* ;; esac
exit 0
END
chmod +x "$work/bin/nodes"

# ssh HOST COMMAND...
{ echo '#!/usr/bin/env bash'; echo "work=$work"; declare -f host; echo 'at=${1##*.}; shift; host "$at" "$@"'; } >"$work/bin/ssh"
chmod +x "$work/bin/ssh"

node_of_pages() { # I N: a node set up as in docs/operations.md
  local i=$1 j members= at=10.0.0.$1
  for ((j = 1; j <= $2; j++)); do members+="${members:+,}n$j=10.0.0.$j:7401"; done
  [ "$i" != 1 ] || at=127.0.0.1
  [ -e "$work/secret" ] || "$real" keygen secret "$work/secret"
  host "$i" bash -c 'setsid "$0" "$@" >>/var/log/server.journal 2>&1 </dev/null & echo $! >/run/server.pid' "$real" server --name "n$i" --data-dir /var/lib/lockstep \
    --listen "10.0.0.$i:7400" --peer-listen "10.0.0.$i:7401" --http-listen "$at:7402" --health-listen "10.0.0.$i:7403" --initial-cluster "$members" --cluster-secret-file "$work/secret" --insecure \
    --audit-log /var/log/audit.log
}
nodes_of_pages() { # N
  local i list=
  for ((i = 1; i <= 7; i++)); do "$work/bin/nodes" stop "$i"; host_empty "$i"; done
  for ((i = 1; i <= $1; i++)); do node_of_pages "$i" "$1"; list+="${list:+,}10.0.0.$i:7400"; done
  export LOCKSTEP_ENDPOINTS=$list
  nodes=$1
  local deadline=$((SECONDS + 60))
  until "$real" run -w 5 docs/ready -- true >/dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || { tail -n 5 "$work"/host-1/log/server.journal; fail "the cluster of the pages does not serve"; }
  done
}

# Each ./program of a block records that it ran, unless the file already exists.
programs() { # BLOCK
  local name
  for name in $(grep -oE '(^|[ ('\''])\./[a-z][a-z-]*(\.sh)?' "$1" | grep -oE '[a-z][a-z-]*(\.sh)?$' | sort -u); do
    [ ! -e "./$name" ] || continue
    printf '#!/bin/sh\necho %s >>%s/ran\n' "$name" "$work" >"$name"
    chmod +x "$name"
  done
}
taken() { grep -oE '\b(billing|cron|jobs|services|deploy|test)/[a-z-]+|\b(gpu|office)\b' "$1" | sort -u || true; }

block() { # PAGE N ENVIRONMENT...: runs a block; its output is in $work/out
  local file=$work/blocks/$1/$2.sh how=$work/blocks/$1/$2.how in=$work/folder place=()
  shift 2
  ! grep -q '^top$' "$how" || in=$top
  cd "$in"
  programs "$file"
  { sed -n 's/^before: //p' "$how"; cat "$file"; } >"$file.run"
  local code=0 machine machines='' own='' i=1
  machine=$(sed -n 's/^on //p' "$how")
  machines=$(sed -n 's/^each of //p' "$how")
  for ((i = ${machine:-1}; i <= ${machine:-${machines:-1}}; i++)); do
    own=$file.run-$i
    sed -E "s/(name:? )n1\b/\1n$i/g; s/(listen:? )10\.0\.0\.1:/\110.0.0.$i:/g" "$file.run" >"$own"
    # On a single machine the nodes cannot share a port of the loopback address.
    [ "$i" = 1 ] || sed -i "s/127\.0\.0\.1:7402/10.0.0.$i:7402/" "$own"
    [ -z "$machine$machines" ] || place=(host "$i" env ON_HOST=1 $([ "$i" = 1 ] || echo "LOCKSTEP_HTTP_LISTEN=10.0.0.$i:7402"))
    "${place[@]}" timeout -k 5 "$limit" env "$@" bash -e -o pipefail "$own" </dev/null >"$work/out" 2>&1 &
    groups+=($!)
    wait $! || { code=$?; break; }
  done
  if [ $code = 0 ] && [ $# = 0 ]; then
    sed -n 's/^after: //p' "$how" >"$file.after"
    # It may take a moment for the condition to hold: a node reports a change once it has applied
    # it.
    for ((i = 0; i < 20; i++)); do
      code=0
      timeout -k 5 "$limit" bash -e -o pipefail "$file.after" </dev/null >"$work/out" 2>&1 || code=$?
      [ $code != 0 ] || break
      sleep 1
    done
  fi
  cd "$work"
  return $code
}

groups=()
end_groups() { local group; for group in "${groups[@]}"; do kill -9 -- "-$group" 2>/dev/null || true; done; groups=(); }
on_exit=('for group in "${groups[@]}"; do kill -9 -- "-$group" 2>/dev/null; done' "${on_exit[@]}")
holders=()
free_all() { [ ${#holders[@]} -eq 0 ] || { kill "${holders[@]}" 2>/dev/null; wait "${holders[@]}" 2>/dev/null; } || true; holders=(); }
busy() { # BLOCK: another holder has what it names
  local name flags
  rm -f "$work"/held-*
  for name in $(taken "$1"); do
    flags=; [ "$name" != gpu ] || flags='--permits 3/3'
    # shellcheck disable=SC2086 # the flags are words
    "$real" hold $flags --ttl 5 "$name" >"$work/held-${name//\//-}" 2>&1 & holders+=($!)
  done
  for name in $(taken "$1"); do until [ -s "$work/held-${name//\//-}" ]; do sleep 0.05; done; done
}
# without_lock PAGE N: no work is done while others hold the lock, or while there is no service.
without_lock() {
  local file=$work/blocks/$1/$2.sh code=0
  busy "$file"
  rm -f "$work/ran"
  limit=6 block "$1" "$2" LOCKSTEP_WAIT=1 LOCKSTEP_CONNECT_TIMEOUT=2 || code=$?
  free_all
  [ ! -e "$work/ran" ] || fail "$1, line $(cat "${file%.sh}.line"): with the lock busy it ran $(sort -u "$work/ran" | xargs)"
  limit=6 block "$1" "$2" LOCKSTEP_ENDPOINTS=127.0.0.1:1 LOCKSTEP_CONNECT_TIMEOUT=1 || code=$?
  [ ! -e "$work/ran" ] || fail "$1, line $(cat "${file%.sh}.line"): without a service it ran $(sort -u "$work/ran" | xargs)"
  checked=$((checked + 1))
}
takes_lock() { grep -qE 'lockstep (run|acquire|elect|hold|lock)' "$1" && grep -qE '(^|[ ('\''])\./[a-z]' "$1" && ! grep -q 'dev --nodes' "$1"; }

run_page() { # PAGE
  local page=$1 dir=$work/blocks/$1 n began code
  [ -e "$dir/count" ] && [ "$(cat "$dir/count")" -gt 0 ] || return 0
  rm -rf "$work/folder"; mkdir "$work/folder"
  case $(cat "$dir/cluster" 2>/dev/null) in
    none) unset LOCKSTEP_ENDPOINTS; for n in 1 2 3 4 5 6 7; do "$work/bin/nodes" stop "$n"; host_empty "$n"; done; nodes=0 ;;
    '') [ "$nodes" = 5 ] || nodes_of_pages 5 ;;
    *) nodes_of_pages "$(cat "$dir/cluster")" ;;
  esac
  for ((n = 1; n <= $(cat "$dir/count"); n++)); do
    if grep -q '^not run: ' "$dir/$n.how" || { [ -n "${QUICK:-}" ] && grep -q '^slow$' "$dir/$n.how"; }; then continue; fi
    ! grep -q '^fresh$' "$dir/$n.how" || end_groups
    began=$(now_ms)
    code=0
    block "$page" "$n" || code=$?
    [ $code = 0 ] || { tail -n 30 "$work/out"; tail -n 3 "$work"/host-*/log/*.journal; fail "$page, line $(cat "$dir/$n.line"): exit code $code (124: $limit s are over)"; }
    ! grep -q 'no tests to run' "$work/out" || fail "$page, line $(cat "$dir/$n.line"): no such test"
    count=$((count + 1))
    [ $(($(now_ms) - began)) -lt 5000 ] || say "$(($(now_ms) - began)) ms: $page, line $(cat "$dir/$n.line")"
    if [ "${nodes:-0}" -gt 0 ] && takes_lock "$dir/$n.sh"; then without_lock "$page" "$n"; fi
  done
  end_groups
}

count=0 checked=0 nodes=0
# The check detects a block that continues without its lock.
mkdir -p "$work/blocks/planted" "$work/folder"
# shellcheck disable=SC2016 # for the block
echo 'export LOCKSTEP_HANDLE=$(lockstep acquire billing/nightly) || exit
./first-half' >"$work/blocks/planted/1.sh"
touch "$work/blocks/planted/1.how"; echo 1 >"$work/blocks/planted/1.line"
nodes_of_pages 5
if (without_lock planted 1) >"$work/planted"; then fail "a block that works without its lock was not found"; fi
grep -q 'with the lock busy it ran first-half' "$work/planted" || fail "planted: $(cat "$work/planted")"

for page in $pages; do run_page "$page"; done
say "$count of $total blocks ran; $checked of them also with the lock busy and without a service; $skipped say why they cannot run here"
