#!/usr/bin/env bash
# a release made in a clone: twice the same files; from its tags, go get of each library and go install of the program work in an empty module; the deb installs in a clean root
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || fail "only root can install a package in a clean root"
version=v0.1.0
# Fewer of them make a quick run; linux on this machine's processor must be there.
export PLATFORMS=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
path=github.com/lockstep-dev/lockstep
libraries="adapter/etcd adapter/postgres adapter/redis adapter/s3 adapter/zookeeper api client server"
export GOWORK=off

# release N: makes the release in the clone $work/N, into $work/files-N. The clones have the committed
# state, and the tools of this tree.
"$top/scripts/install-tools" release
release() {
  git clone -q "$top" "$work/$1"
  git -C "$work/$1" config user.name "An outsider"
  git -C "$work/$1" config user.email outsider@lockstep.example
  mkdir "$work/$1/.bin"
  cp "$top"/.bin/{nfpm,cyclonedx-gomod,.nfpm-v*,.cyclonedx-gomod-v*} "$work/$1/.bin"
  (cd "$work/$1" && scripts/release "$version" "$work/files-$1") >"$work/release-$1" 2>&1 || { tail -n 20 "$work/release-$1"; fail "scripts/release"; }
}
[ -z "$(git -C "$top" status --porcelain)" ] || say "the tree has changes that are not committed: they are not tested"
release first
# The second one with other settings, which must not matter.
(umask 077; export TZ=Pacific/Kiritimati LC_ALL=C.UTF-8 GOAMD64=v3; release second)
diff -r "$work/files-first" "$work/files-second" || fail "two releases of one commit differ"
(cd "$work/files-first" && sha256sum --quiet -c SHA256SUMS) || fail "SHA256SUMS"
say "two releases in two clones: $(ls "$work/files-first" | wc -l) files, the same byte for byte"
cd "$work/first"
if touch stray && scripts/release v0.9.9 >"$work/refused" 2>&1; then fail "released from a tree that is not clean"; fi
rm stray
PLATFORMS=linux/$(dpkg --print-architecture) scripts/release "$version" "$work/files-again" >"$work/log" 2>&1 || { tail -n 20 "$work/log"; fail "scripts/release when the tags exist"; }
for file in "$work"/files-again/lockstep*; do cmp "$file" "$work/files-first/${file##*/}" || fail "made again from the tags, ${file##*/} differs"; done
tags=$(git tag --points-at "$version^{commit}" | wc -l)
[ "$tags" = "$(go work edit -json go.work | jq '.Use | length')" ] || fail "the release commit has the tags $(git tag --points-at "$version^{commit}" | xargs)"
[ "$(git rev-parse "$version^")" = "$(git rev-parse HEAD)" ] || fail "the release is not a child of the commit that was released"
changed=$(git diff --name-only HEAD "$version" | grep -vE '(^|/)go\.(mod|sum|work)$' || true)
[ -z "$changed" ] || fail "the release commit changes $changed"
! git grep -nE '^replace|lockstep.* v0\.0\.0$' "$version" -- '*go.mod' || fail "a go.mod of the release has a replace, or requires v0.0.0"
say "$tags tags on one commit, which differs from its parent in go.mod, go.sum and go.work only"
# In the tree of the tag a build needs no published module of ours, and the image gets the version.
git worktree add -q "$work/tagged" "$version"
cd "$work/tagged/cmd"
GOWORK='' GOPROXY=off go list -deps ./lockstep >"$work/log" 2>&1 || { tail -n 5 "$work/log"; fail "the tree of the tag needs published modules"; }
# shellcheck disable=SC2030,SC2031 # the variable is for this check alone
told=$(unset VERSION; eval "$(sed -n 's/^RUN cd cmd && \(VERSION=.*)}\) && CGO_ENABLED.*/\1/p' ../deploy/Dockerfile)"; echo "${VERSION:-}")
[ "$told" = "$version" ] || fail "the image would have version \"$told\""

# An outsider: an empty module cache, and the clone in the place of the public repository. Modules of
# others come from the cache of this machine, if it has them; -trimpath and CGO_ENABLED=0 are for the
# build cache alone.
export GOPROXY GOMODCACHE GOPRIVATE=$path GOFLAGS="-modcacherw -trimpath" CGO_ENABLED=0
GOPROXY=file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)
GOMODCACHE=$work/modules
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.file://$work/first.insteadOf GIT_CONFIG_VALUE_0=https://$path
# uses DIRECTORY MODULE... <PROGRAM: an empty module gets the modules, and the program compiles.
uses() {
  mkdir -p "$work/$1"
  cd "$work/$1"
  shift
  cat >main.go
  { go mod init outsider.example && go get "${@/%/@$version}" && go mod tidy && go build -o program .; } >"$work/log" 2>&1 || { tail -n 20 "$work/log"; fail "go get $*"; }
  ! grep -q v0.0.0-0 go.mod || fail "$*: $(cat go.mod)"
}
uses outsider/root "$path" <<END
package main

import (
	"context"
	"fmt"

	"$path"
	"$path/memlock"
)

func main() {
	err := lockstep.Do(context.Background(), memlock.New(), "a", func(ctx context.Context, token lockstep.Token) error { return ctx.Err() })
	fmt.Println("done", err)
}
END
[ "$(./program)" = "done <nil>" ] || fail "the program over memlock: $(./program)"
say "go get $path: a program over memlock runs"
# using IMPORT...: a program that refers to New of each package, and that names a Locker or a Guard.
using() {
  printf 'package main\n\nimport (\n'
  printf '\t"%s"\n' "${@/#/$path/}"
  printf ')\n\nfunc main() {\n'
  for package in "$@"; do case $package in *s3fence) echo "	_ = s3fence.Open" ;; api/*) echo "	_ = new(lockstepv1.ClientRequest)" ;; *) echo "	_ = ${package##*/}.New" ;; esac; done
  printf '}\n'
}
packages_of() {
  case $1 in
    adapter/etcd) echo adapter/etcd/etcdlock adapter/etcd/etcdfence ;;
    adapter/postgres) echo adapter/postgres/pglock adapter/postgres/pgfence ;;
    adapter/redis) echo adapter/redis/redislock adapter/redis/redlock adapter/redis/redisfence ;;
    adapter/s3) echo adapter/s3/s3fence ;;
    adapter/zookeeper) echo adapter/zookeeper/zklock ;;
    api) echo api/lockstep/v1 ;;
    client | server) echo "$1" ;;
  esac
}
all=()
for library in $libraries; do
  mapfile -t packages < <(packages_of "$library" | tr ' ' '\n')
  uses "outsider/$library" "$path/$library" < <(using "${packages[@]}")
  say "go get $path/$library: a program that uses ${packages[*]##*/} compiles, $(go list -m all | wc -l) modules"
  all+=("${packages[@]}")
done
# shellcheck disable=SC2086 # the libraries are words
uses outsider/all $(printf "$path/%s " $libraries) < <(using "${all[@]}")
say "one program uses all of them"

GOBIN=$work/bin go install "$path/cmd/lockstep@$version" >"$work/log" 2>&1 || { tail -n 20 "$work/log"; fail "go install"; }
told=$("$work/bin/lockstep" --version)
case $told in "lockstep $version $(go env GOOS)/$(go env GOARCH) "*) ;; *) fail "--version of go install says: $told" ;; esac
say "go install $path/cmd/lockstep@$version: $told"

# The archives.
cd "$work/files-first"
arch=$(dpkg --print-architecture)
for platform in $PLATFORMS; do
  name=lockstep_${version#v}_${platform/\//_}
  tar -tvzf "$name.tar.gz" >"$work/verbose"
  awk '{print $6}' "$work/verbose" >"$work/list"
  for file in lockstep LICENSE man/lockstep-run.1 completions/lockstep.bash completions/_lockstep completions/lockstep.fish; do
    grep -qx "$name/$file" "$work/list" || fail "$name.tar.gz lacks $file"
  done
  size=$(awk -v program="$name/lockstep" '$6 == program {print $3}' "$work/verbose")
  [ "$size" -le 45000000 ] || fail "$name: the program has $size bytes, want 45 MB at most"
  jq -e --arg v "$version" '.metadata.component.version == $v and ([.components[].name] | index("github.com/cockroachdb/pebble/v2") and index("github.com/lockstep-dev/lockstep/server"))' "$name.cdx.json" >/dev/null ||
    fail "$name.cdx.json lacks the version or a module: $(jq -c .metadata.component "$name.cdx.json")"
done
tar -xzf "lockstep_${version#v}_linux_$arch.tar.gz" -C "$work"
program=$work/lockstep_${version#v}_linux_$arch/lockstep
[ "$("$program" version -o json | jq -r '.version + " " + .built')" = "$version $(date -u -d "@$(git -C "$work/first" log -1 --format=%ct)" +%FT%T.000Z)" ] || fail "the program of the archive says $("$program" version -o json)"
# The texts of the manual are those of --help, character for character where it matters.
grep -q 'LOCKSTEP_<FLAG>' "${program%/*}/man/lockstep.1" || fail "the manual lost LOCKSTEP_<FLAG>"
say "archives for $PLATFORMS, with an SBOM each; the program has $(stat -c %s "$program") bytes"

# The deb, in a root with nothing but Debian's essential packages and systemd.
deb=$(echo "$PWD"/lockstep_*_"$arch".deb) rpm=$(echo "$PWD"/lockstep-*"$(uname -m)".rpm)
root=$work/root
# shellcheck source=/dev/null
mmdebstrap --quiet --variant=essential --include=passwd,systemd "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" >"$work/log" 2>&1 || { tail "$work/log"; fail "no clean root"; }
cp "$deb" "$root/lockstep.deb"
in_root() { LC_ALL=C chroot "$root" "$@"; }
in_root dpkg -i /lockstep.deb >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -i"; }
[ "$(in_root lockstep --version | cut -d' ' -f1,2)" = "lockstep $version" ] || fail "the program of the deb says $(in_root lockstep --version)"
in_root id lockstep >/dev/null || fail "there is no user lockstep"
[ "$(stat -c %a "$root/usr/lib/systemd/system")" = 755 ] || fail "/usr/lib/systemd/system has mode $(stat -c %a "$root/usr/lib/systemd/system")"
for file in /etc/lockstep.yaml /usr/share/man/man1/lockstep-run.1.gz /usr/share/bash-completion/completions/lockstep /usr/lib/systemd/system/lockstep.service; do
  [ "$(stat -c '%U %a' "$root$file")" = "root 644" ] || fail "$file: $(stat -c '%U %a' "$root$file")"
done
verify() { systemd-analyze verify --man=no --root="$root" lockstep.service lockstep-run@nightly.service lockstep-run@nightly.timer lockstep-elect@scheduler.service >"$work/log" 2>&1; }
verify && [ ! -s "$work/log" ] || fail "systemd-analyze: $(cat "$work/log")"
mv "$root/usr/bin/lockstep" "$root/usr/bin/lockstep.away"
if verify; then fail "systemd-analyze does not look into the root"; fi
mv "$root/usr/bin/lockstep.away" "$root/usr/bin/lockstep"
# As shipped, the configuration is refused with the code after which systemd does not restart. Filled
# in, with the secret as the unit passes it, the node starts.
if in_root lockstep server --config /etc/lockstep.yaml >"$work/log" 2>&1; then code=0; else code=$?; fi
[ "$code" = 64 ] || fail "the configuration as shipped: exit code $code, $(cat "$work/log")"
sed -i -E 's/^#([a-z])/\1/' "$root/etc/lockstep.yaml"
in_root lockstep keygen secret /etc/lockstep/secret
LOCKSTEP_CLUSTER_SECRET_FILE=/etc/lockstep/secret in_root lockstep server --config /etc/lockstep.yaml --print-config >"$work/config" || fail "the configuration, filled in"
grep -q '^name: *n1' "$work/config" || fail "the configuration, filled in: $(cat "$work/config")"
in_root dpkg -r lockstep >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -r"; }
[ ! -e "$root/usr/bin/lockstep" ] && [ -e "$root/etc/lockstep.yaml" ] && [ -e "$root/etc/lockstep/secret" ] || fail "after dpkg -r: $(ls "$root/usr/bin/lockstep" "$root/etc/lockstep" "$root/etc/lockstep.yaml" 2>&1)"
say "the deb installs in a clean root, its units are in order, and removing it keeps the configuration and the secret"

files_of() { sed -E 's#^\./#/#; s#vendor-completions|site-functions#completions#' | grep -E '/(lockstep|_lockstep|copyright)' | sort; }
dpkg-deb --fsys-tarfile "$deb" | tar -t | grep -v '/$' | files_of >"$work/deb.files"
rpm -qlp "$rpm" 2>/dev/null | grep -vx /etc/lockstep | files_of >"$work/rpm.files"
grep -q '^/usr/lib/systemd/system/lockstep.service$' "$work/rpm.files" && diff "$work/deb.files" "$work/rpm.files" || fail "the deb and the rpm have different files"
rpm -K --nosignature "$rpm" >"$work/log" 2>&1 || fail "the digests of the rpm: $(cat "$work/log")"
rpm -qp --scripts "$rpm" 2>/dev/null | grep -q 'useradd --system' || fail "the rpm does not create the user"
say "the rpm has the same $(wc -l <"$work/rpm.files") files"
