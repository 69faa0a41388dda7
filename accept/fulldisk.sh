#!/usr/bin/env bash
# the nodes' file systems are full: /readyz says so, nothing more is acknowledged, nothing is lost, and they serve again once there is space
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || { fail "only root can mount the small file systems: run it as root"; }
nodes=3
for i in 1 2 3; do
  mkdir "$work/disk-$i"
  mount -t tmpfs -o size="${DISK_SIZE:-64m}" "lockstep-$i" "$work/disk-$i" || { fail "a tmpfs cannot be mounted here"; }
  on_exit+=("umount -l '$work/disk-$i'")
  ln -s "disk-$i/data" "$work/n$i"
  mkdir -m 0700 "$work/disk-$i/data"
done
on_exit=('kill -9 "${pids[@]}" 2>/dev/null' "${on_exit[@]}")
cluster_start 3
cd "$work"

holders=()
fill() { # LEAVE: on each disk, all but this many bytes
  local i free
  for i in 1 2 3; do
    free=$(df -B1 --output=avail "disk-$i" | tail -1)
    if [ "$free" -gt "$1" ]; then head -c $((free - $1)) /dev/zero >>"disk-$i/filler" 2>/dev/null || true; fi
  done
}
readyz() { curl -s -m 2 "http://127.0.0.1:$(($(client_port "$1") + 2))/readyz?verbose" || true; }

for i in $(seq 5); do
  "$lockstep" run --ttl 120s "held/$i" -- sh -c "echo \$LOCKSTEP_TOKEN >held-$i; sleep 1000" 2>"held-$i.err" &
  holders+=($!)
done
on_exit=('kill "${holders[@]}" 2>/dev/null; sleep 0.5' "${on_exit[@]}")
for i in $(seq 5); do until [ -s "held-$i" ]; do sleep 0.05; done; done

fill $((2 << 20))
for i in 1 2 3; do readyz "$i" | grep -q '^\[-\] space: .*full' || fail "n$i does not say that its disk is full: $(readyz "$i")"; done
curl -s -o /dev/null -w '%{http_code}\n' "http://127.0.0.1:$(($(client_port 1) + 2))/livez" | grep -q 200 || fail "liveness fails for a full disk"
say "2 MiB left: each node says so on /readyz, and is alive"

# Each of these counts as granted only if its command ran, with its token.
(until [ -e over ]; do "$lockstep" run -w 2 --connect-timeout 2 "load/$((RANDOM % 5))" -- sh -c 'echo $LOCKSTEP_TOKEN' >>acknowledged 2>/dev/null || true; done) & load=$!
sleep 2
deadline=$((SECONDS + 90))
alive=3
while [ $alive -gt 1 ]; do
  fill 0
  # Writes that still fit into already open files succeed; these fill the files up too.
  timeout 5 "$lockstep" bench --workers 16 --duration 2s >/dev/null 2>&1 || true
  alive=0
  for i in 1 2 3; do if kill -0 "${pids[$i]}" 2>/dev/null; then alive=$((alive + 1)); fi; done
  [ $SECONDS -lt $deadline ] || fail "$alive nodes go on without room"
done
touch over
if timeout 10 "$lockstep" run -w 3 --connect-timeout 3 nobody/grants -- true 2>/dev/null; then fail "a lock was granted without room for its record"; fi
wait $load || true
highest=$(sort -n acknowledged | tail -1)
for i in 1 2 3; do kill -0 "${pids[$i]}" 2>/dev/null || grep -h 'no space left' "n$i.log" | head -1 | grep -q . || fail "n$i does not say why it ended: $(tail -n 2 "n$i.log")"; done
say "full: $((3 - alive)) of 3 nodes ended and said why; $(wc -l <acknowledged) grants until then, the highest token $highest"

for i in 1 2 3; do rm "disk-$i/filler"; kill -0 "${pids[$i]}" 2>/dev/null || node_start "$i"; done
wait_serving
wait_members
for i in $(seq 5); do
  token=$("$lockstep" show "held/$i" -o json | jq '.holders[0].token')
  [ "$token" = "$(cat "held-$i")" ] || fail "held/$i was granted with token $(cat "held-$i"), now has $token"
done
fresh=$("$lockstep" run fresh/lock -- sh -c 'echo $LOCKSTEP_TOKEN')
[ "$fresh" -gt "$highest" ] || fail "token $fresh after $highest"
for i in 1 2 3; do readyz "$i" | grep -q '^ready' || fail "n$i is not ready: $(readyz "$i")"; done
say "room again: all serve, 5 of 5 locks still held under their tokens, the next token is larger ($fresh > $highest)"
