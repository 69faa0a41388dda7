#!/usr/bin/env bash
# the pods of deploy/kubernetes without Kubernetes: their command line, user, secret and read-only root, each in its own network namespace; probes, a rolling restart under load, a deleted pod
. "$(dirname "$0")/hosts.sh"
hosts_namespace "$@"
. "$(dirname "$0")/lib.sh"
file=$top/deploy/kubernetes/lockstep.yaml
export POD_NAMESPACE=teams
list() { awk -v key="$1:" '$1 == key {on = 1; next} on && /^ *- / {sub(/^ *- /, ""); print; next} on {exit}' "$file"; } # the words of a list
value() { awk -v key="$1:" '{sub(/^ *- /, "")} $1 == key {print $2; exit}' "$file"; }
probe() { sed -n "/$1:/,/httpGet/s/.*httpGet: {path: \([a-z/]*\), port: health}.*/\1/p" "$file"; }
list args >"$work/args"
user=$(value runAsUser) group=$(value fsGroup) grace=$(value terminationGracePeriodSeconds) replicas=$(value replicas)
[ "$(wc -l <"$work/args")" -ge 12 ] && [ "$replicas" = 3 ] && [ "$(grep -c initial-cluster "$work/args")" = 3 ] || fail "$replicas replicas, arguments: $(cat "$work/args")"
[ "$(probe livenessProbe)" = /livez ] && [ "$(probe readinessProbe)" = /readyz ] || fail "probes $(probe livenessProbe) and $(probe readinessProbe)"

# A bridge, and for each pod a namespace and an address, and the names of the headless service.
ip link set lo up
mount -t tmpfs none /run
ip link add pods type bridge
ip addr add 10.8.0.254/24 dev pods
ip link set pods up
cp -a /etc "$work/etc"
rm -f "$work/etc/resolv.conf" "$work/etc/hosts"
echo '127.0.0.1 localhost' >"$work/etc/hosts"
mkdir "$work/rootfs" "$work/pod-secret"
"$lockstep" keygen secret "$work/pod-secret/secret"
chown "0:$group" "$work/pod-secret/secret"
chmod "$(value defaultMode)" "$work/pod-secret/secret"
chmod 0755 "$work"
for i in 0 1 2; do
  ip netns add "pod-$i"
  ip link add "veth-$i" type veth peer name eth0 netns "pod-$i"
  ip link set "veth-$i" master pods up
  ip -n "pod-$i" addr add "10.8.0.1$i/24" dev eth0
  ip -n "pod-$i" link set eth0 up
  ip -n "pod-$i" link set lo up
  echo "10.8.0.1$i lockstep-$i lockstep-$i.lockstep lockstep-$i.lockstep.$POD_NAMESPACE.svc" >>"$work/etc/hosts"
  # A volume belongs to root, and to the group of fsGroup.
  mkdir "$work/volume-$i"
  chown "0:$group" "$work/volume-$i"
  chmod 2775 "$work/volume-$i"
done
mount --bind "$work/etc" /etc
mkdir -p "$work/rootfs/data" "$work/rootfs/run/secrets/lockstep" "$work/rootfs/etc"
cp "$lockstep" "$work/rootfs/lockstep"
cp "$work/etc/hosts" "$work/rootfs/etc/hosts"
# The program in the image is static; the one under test need not be.
for lib in $(ldd "$lockstep" 2>/dev/null | grep -oE '/[^ ]+'); do mkdir -p "$work/rootfs${lib%/*}"; cp -L "$lib" "$work/rootfs$lib"; done

pod_start() {
  local i=$1 args=() word
  export POD_NAME=lockstep-$i
  while read -r word; do word=${word//'$(POD_NAME)'/$POD_NAME}; args+=("${word//'$(POD_NAMESPACE)'/$POD_NAMESPACE}"); done <"$work/args"
  # shellcheck disable=SC2016 # for the inner shell
  setsid ip netns exec "pod-$i" unshare --mount bash -c 'root=$1/rootfs work=$1 i=$2 user=$3 group=$4; shift 4
    mount --bind "$root" "$root"; mount --bind "$work/volume-$i" "$root/data"; mount --bind "$work/pod-secret" "$root/run/secrets/lockstep"; mount -o remount,bind,ro "$root"
    exec setpriv --no-new-privs env -i POD_NAME="$POD_NAME" POD_NAMESPACE="$POD_NAMESPACE" LOCKSTEP_DATA_DIR=/data /usr/sbin/chroot --userspec="$user:$group" --groups="$group" "$root" /lockstep "$@"' \
    _ "$work" "$i" "$user" "$group" "${args[@]}" >>"$work/pod-$i.log" 2>&1 </dev/null &
  pids[$i]=$!
  disown "${pids[$i]}"
}
pod_stop() { # like the kubelet: TERM, then KILL after the grace period
  local deadline=$((SECONDS + grace))
  kill -TERM "${pids[$1]}"
  while kill -0 "${pids[$1]}" 2>/dev/null; do
    [ $SECONDS -lt $deadline ] || fail "lockstep-$1 has not ended in $grace s"
    sleep 0.05
  done
}
probed() { curl -s -m 2 -o /dev/null -w '%{http_code}' "http://10.8.0.1$1:7403$(probe "$2")" || true; }
ready() { # I: waits for the readiness probe
  local deadline=$((SECONDS + 60))
  until [ "$(probed "$1" readinessProbe)" = 200 ]; do
    kill -0 "${pids[$1]}" 2>/dev/null && [ $SECONDS -lt $deadline ] || { tail -n 3 "$work/pod-$1.log"; fail "lockstep-$1 is not ready"; }
    sleep 0.2
  done
}

for i in 0 1 2; do pod_start $i; done
for i in 0 1 2; do ready $i; [ "$(probed $i livenessProbe)" = 200 ] || fail "lockstep-$i is not alive"; done
export LOCKSTEP_ENDPOINTS=lockstep-0.lockstep:7400,lockstep-1.lockstep:7400,lockstep-2.lockstep:7400
"$lockstep" run kubernetes/works -- true || fail "nothing is granted by the names of the service"
[ "$("$lockstep" status -o json | jq '[.members[] | select(.client_address | endswith(".teams.svc:7400"))] | length')" = 3 ] || fail "addresses: $("$lockstep" status)"
! curl -s -m 2 -o /dev/null http://10.8.0.10:7402/v1/status || fail "the API over HTTP is reachable from other pods"
curl -s -m 2 http://10.8.0.10:7403/metrics | grep -q '^lockstep_' || fail "no metrics on the health port"
say "three pods as user $user with a secret of mode $(stat -c %a "$work/pod-secret/secret"): ready, alive, served by their names; 7402 is not reachable from outside"

"$lockstep" bench --workers 16 --duration "${SECONDS_OF_LOAD:-20}s" -o json >"$work/bench.json" 2>"$work/bench.log" & load=$!
sleep 1
for i in 2 1 0; do pod_stop $i; pod_start $i; ready $i; sleep 1; done
wait $load || fail "the load failed: $(cat "$work/bench.log")"
jq -e '.longest_gap_ms < 2000 and .errors == 0' "$work/bench.json" >/dev/null || fail "errors, or a gap of 2 s or more: $(cat "$work/bench.json")"
say "a rolling restart: $(jq .grants "$work/bench.json") grants, longest gap $(jq .longest_gap_ms "$work/bench.json") ms"

kill -9 "${pids[0]}" "${pids[1]}"
sleep 3
[ "$(probed 2 readinessProbe)" = 503 ] && [ "$(probed 2 livenessProbe)" = 200 ] || fail "without a majority: readiness $(probed 2 readinessProbe), liveness $(probed 2 livenessProbe)"
pod_start 0; pod_start 1
for i in 0 1 2; do ready $i; done
"$lockstep" run kubernetes/again -- true || fail "nothing is granted after two pods were killed"
say "two pods killed: the third is not ready, and alive; all are ready again when they are back"
