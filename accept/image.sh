#!/usr/bin/env bash
# the image of deploy/Dockerfile: built by docker if there is a daemon, else by running its steps; every command works in it, as its user, with a read-only root and its environment
BASE_PORT=${BASE_PORT:-28700}
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || fail "only root can change to the root file system and the user of an image"
file=$top/deploy/Dockerfile
value() { sed -n "s/^$1 //p" "$file" | tail -1; }
root=$work/root
mkdir "$root"
if docker info >/dev/null 2>&1; then
  docker build -q -f "$file" -t lockstep-accept "$top" >/dev/null
  container=$(docker create lockstep-accept)
  docker export "$container" | tar -x -C "$root"
  docker rm "$container" >/dev/null
  say "built by docker"
else
  # The build context according to .dockerignore: only what it re-includes.
  mkdir "$work/src"
  while read -r line; do
    case $line in '!'*) git -C "$top" ls-files -- "${line#!}" | grep -v /testdata/ | tar -C "$top" -c -T - | tar -C "$work/src" -x ;; esac
  done <"$top/.dockerignore"
  # The RUN step of the first stage, with the directory that is to become the root of the image.
  awk '/^RUN /,!/\\$/' "$file" | sed "1s/^RUN //; s#-o /lockstep#-o $root/lockstep#; s#mkdir -m 0700 /data#mkdir -m 0700 $root/data#" >"$work/step"
  (cd "$work/src" && VERSION=accept BUILT=0 bash -e "$work/step") || fail "the RUN step"
  grep -q '^COPY --from=build --chown=65532:65532 /data /data$' "$file" || fail "the owner of /data"
  chown 65532:65532 "$root/data"
  say "no docker daemon: the steps by hand, $(find "$work/src" -type f | wc -l) files in the context"
fi
[ -z "$(find "$root" -name .git)" ] || fail "the history is in the image"
linked=$(ldd "$root/lockstep" 2>&1 || true)
case $linked in *"not a dynamic executable"* | *"statically linked"*) ;; *) fail "the program is not static: $linked" ;; esac
[ "$(value USER)" = 65532:65532 ] && [ "$(value ENTRYPOINT)" = '["/lockstep"]' ] || fail "user $(value USER), entry point $(value ENTRYPOINT)"

# A container: a read-only root, /data and /backup as mounts, nothing else writable, the user and
# the environment of the image.
mkdir -p "$root/proc" "$root/dev" "$root/backup" "$root/run/secrets" "$work/volume" "$work/backup"
chown 65532:65532 "$work/volume" "$work/backup"
chmod 0700 "$work/volume"
chmod 0755 "$work"
"$lockstep" keygen secret "$root/run/secrets/lockstep"
chown 65532:65532 "$root/run/secrets/lockstep"
mapfile -t environment < <(sed -n 's/^ENV //p' "$file")
image() {
  # shellcheck disable=SC2016 # for the inner shell
  exec unshare --mount bash -c 'root=$1 work=$2; shift 2
    mount --bind "$root" "$root"; mount --bind /proc "$root/proc"; mount --bind /dev "$root/dev"; mount --bind "$work/volume" "$root/data"; mount --bind "$work/backup" "$root/backup"; mount -o remount,bind,ro "$root"
    exec setpriv --no-new-privs chroot --userspec=65532:65532 "$root" "$@"' _ "$root" "$work" /lockstep "$@"
}
# become COMMAND...: this process becomes the program in the image.
become() { exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "${environment[@]}" LOCKSTEP_ENDPOINTS="127.0.0.1:$BASE_PORT" bash -c "$(declare -f image); root=$root work=$work; image \"\$@\"" _ "$@"; }
with() { (become "$@"); }
become server --name n1 --listen "127.0.0.1:$BASE_PORT" --peer-listen "127.0.0.1:$((BASE_PORT + 1))" --http-listen "127.0.0.1:$((BASE_PORT + 2))" \
  --initial-cluster "n1=127.0.0.1:$((BASE_PORT + 1))" --cluster-secret-file /run/secrets/lockstep 2>"$work/server.log" & server=$!
deadline=$((SECONDS + 60))
until with run -w 1 image/ready -- /lockstep version >/dev/null 2>&1; do
  kill -0 $server 2>/dev/null && [ $SECONDS -lt $deadline ] || { tail "$work/server.log"; fail "the server in the image does not serve"; }
done
[ -n "$(ls "$work/volume")" ] || fail "the data are not in /data"

count=0
works() { # COMMAND...: it works in the image
  with "$@" >"$work/out" 2>&1 || fail "$*: exit code $?: $(tail -n 3 "$work/out")"
  count=$((count + 1)) done_+=" $1 "
}
done_=' server '
works version
works status
works run image/job -- /lockstep version
works elect image/office -- /lockstep version
handle=$(with acquire --ttl 60 image/script)
export handle
script() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "${environment[@]}" LOCKSTEP_HANDLE="$handle" LOCKSTEP_ENDPOINTS="127.0.0.1:$BASE_PORT" bash -c "$(declare -f image); root=$root work=$work; image \"\$@\"" _ "$@" >/dev/null || fail "$1"; done_+=" $1 "; }
script renew; script release; done_+=' acquire '
works show image/job
works ls
works sessions
works history image/job
works watch --after 1 --limit 1
works top -o json
works member list
works snapshot save /backup/a.backup
works snapshot verify /backup/a.backup
works snapshot restore /backup/a.backup --name n1 --data-dir /backup/n1 --initial-cluster n1=127.0.0.1:1
works bench --workers 2 --duration 1s
works sim --seeds 1
works backends
works completion bash
with acquire --ttl 60 image/revoked >/dev/null
works revoke image/revoked --reason "the test" --now
for endless in "hold image/held" "dev --nodes 1 --port $((BASE_PORT + 5))"; do
  # shellcheck disable=SC2086 # the command is words
  become $endless >"$work/out" 2>&1 & waiting=$!
  until [ -s "$work/out" ]; do kill -0 $waiting 2>/dev/null || fail "$endless: $(cat "$work/out")"; sleep 0.1; done
  kill -TERM $waiting
  wait $waiting || true
  done_+=" ${endless%% *} "
done
# demo needs a writable directory, and fence a guard.
for command in $("$root/lockstep" --help | awk '/^Available Commands:/ {on = 1; next} /^$/ {on = 0} on {print $1}'); do
  case " demo fence help keygen upgrade $done_" in *" $command "*) ;; *) fail "$command was not tried in the image" ;; esac
done
[ ! -e "$root/tmp" ] && [ "$(find "$root" -xdev -type f -user 65532 | wc -l)" -le 1 ] || fail "something was written to the root: $(find "$root" -xdev -newer "$work/server.log")"
kill -TERM $server
wait $server || fail "the server ends with $? after TERM: $(tail -n 2 "$work/server.log")"
say "$count commands work as user 65532 with a read-only root; TERM ends the server well"
