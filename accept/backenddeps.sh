#!/usr/bin/env bash
# importing one backend does not pull in another's client, and the contract needs only the standard library
. "$(dirname "$0")/lib.sh"
cd "$top"
declare -A client=([redis]='github.com/redis/' [zookeeper]='github.com/go-zookeeper/' [etcd]='go.etcd.io/etcd/' [postgres]='github.com/jackc/' [s3]='github.com/aws/')
for module in redis zookeeper etcd postgres s3; do
  deps=$(cd "adapter/$module" && GOWORK=off go list -deps ./...)
  grep -q "^${client[$module]}" <<<"$deps" || fail "$module does not even have its own client"
  for other in redis zookeeper etcd postgres s3; do
    [ "$other" = "$module" ] || ! grep "^${client[$other]}" <<<"$deps" || fail "adapter/$module needs the client of $other"
  done
  ! grep -E '^(google.golang.org/grpc|github.com/cockroachdb/)' <<<"$deps" | grep -v etcd >"$work/grpc" || [ "$module" = etcd ] || fail "adapter/$module needs $(head -1 "$work/grpc")"
  say "adapter/$module: $(wc -l <<<"$deps") packages, of other backends none"
done
foreign=$(GOWORK=off go list -deps -test ./... | grep -E '^[a-z]+\.[a-z]+/' | grep -v '^github.com/lockstep-dev/lockstep' || true)
[ -z "$foreign" ] || fail "the root module needs $foreign"
! grep -q '^require' go.mod || fail "the root go.mod requires something"
say "the root module: standard library only, in its tests too"
