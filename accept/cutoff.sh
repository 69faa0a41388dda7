#!/usr/bin/env bash
# the holder's host is cut off without RST, TTL 15 s, 20 times: the child is gone before the next holder starts
# A host is a network namespace with a cable to this one; a rule that drops everything cuts it.
CLUSTER_HOST=10.77.0.1 SERVER_FLAGS=--insecure
. "$(dirname "$0")/lib.sh"
ns=lockstep-accept-$$ dev=lsa$$
dev=${dev:0:12}
on_exit+=("ip netns pids $ns | xargs -r kill -9; ip netns del $ns; ip link del ${dev}a")
ip netns add "$ns"
ip link add "${dev}a" type veth peer name "${dev}b" netns "$ns"
ip addr add 10.77.0.1/24 dev "${dev}a"; ip link set "${dev}a" up
ip -n "$ns" addr add 10.77.0.2/24 dev "${dev}b"; ip -n "$ns" link set "${dev}b" up; ip -n "$ns" link set lo up
cluster_start 5
cd "$work"
rounds=${ROUNDS:-4} abreast=5 n=0
cut() { ip netns exec "$ns" nft -f - <<<'table inet cut { chain i { type filter hook input priority 0; policy drop; }; chain o { type filter hook output priority 0; policy drop; }; }'; }
heal() { ip netns exec "$ns" nft delete table inet cut; }
for ((r = 1; r <= rounds; r++)); do
  waiters=()
  for ((k = 1; k <= abreast; k++)); do
    i=$r-$k
    ip netns exec "$ns" "$lockstep" run --ttl 15s "cut/$i" -- sh -c "sleep 1000 & echo \$\$ \$! > $i.pids; sleep 1000" 2>"$i.err" &
    until [ -s "$i.pids" ]; do sleep 0.05; done
    "$lockstep" run --ttl 15s "cut/$i" -- sh -c "for p in \$(cat $i.pids); do [ -d /proc/\$p ] && ! grep -q '^State:.*[ZX]' /proc/\$p/status && echo alive >> $i.alive; done; awk '{printf \"%d\\n\", \$1 * 1000}' /proc/uptime > $i.granted" &
    waiters+=($!)
  done
  sleep $((1 + r))
  at=$(now_ms); cut
  wait "${waiters[@]}"
  for ((k = 1; k <= abreast; k++)); do
    [ ! -e "$r-$k.alive" ] || fail "try $r-$k: the child was alive when the next holder started"
    took+=($(($(cat "$r-$k.granted") - at))); n=$((n + 1))
  done
  heal
done
say "$n of $n: next holder started after ms: ${took[*]}"
