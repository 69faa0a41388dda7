# What the scripts that test documents share: machines, to the extent that a document needs them.
# Sourced after lib.sh, not run.
#
#   hosts N              N machines, n1 at 10.0.0.1 and so on, with their own network and file systems
#   host I COMMAND...    runs a command on machine I, which has its own /etc, /var/lib, /var/log, /run, /etc/systemd
#   hosts_namespace "$@" restarts the script where that is possible; call it before lib.sh
#
# On each machine, systemctl is accept/systemctl, which does what these tests need from a unit, and
# /usr/local/bin/lockstep is the program.

hosts_namespace() {
  [ -z "${IN_HOSTS:-}" ] || return 0
  [ "$(id -u)" = 0 ] || exec sudo -E "PATH=$PATH" bash "$0" "$@"
  IN_HOSTS=1 exec unshare --net --mount --propagation private bash "$0" "$@"
}

hosts() {
  local i file
  ip link set lo up
  mkdir "$work/usr-local-bin" "$work/bin"
  # Existing links are kept. Nothing of the real machine is mounted below $work, which is removed at
  # the end.
  find /usr/local/bin -type l -exec cp -a {} "$work/usr-local-bin/" \;
  ln -sf "$lockstep" "$work/usr-local-bin/lockstep"
  ln -sf "$top/accept/systemctl" "$work/bin/systemctl"
  mount --bind "$work/usr-local-bin" /usr/local/bin
  cp -a /etc "$work/etc"
  rm -f "$work/etc/resolv.conf" "$work/etc/hosts"
  echo '127.0.0.1 localhost' >"$work/etc/hosts"
  for ((i = 1; i <= $1; i++)); do
    ip addr add "10.0.0.$i/32" dev lo
    echo "10.0.0.$i n$i" >>"$work/etc/hosts"
  done
  mount --bind "$work/etc" /etc
  for ((i = 1; i <= $1; i++)); do host_empty "$i"; done
  chmod 0755 "$work"
  export PATH="$work/bin:/usr/local/bin:$PATH"
  on_exit+=('for file in "$work"/host-*/run/*.pid; do [ ! -e "$file" ] || kill -9 -- "-$(cat "$file")" 2>/dev/null; done')
}

# host_empty I: resets the machine to its initial state.
host_empty() {
  rm -rf "$work/host-$1"
  mkdir -p "$work/host-$1"/{lib,log,run,etc/systemd/system,etc/default,etc/cron.d}
  # What programs and useradd need.
  (cd "$work/etc" && cp -a passwd group shadow gshadow login.defs nsswitch.conf hosts ld.so.* pam.d security localtime "$work/host-$1/etc" 2>/dev/null) || true
}

host() {
  unshare --mount bash -c 'for dir in etc:/etc lib:/var/lib log:/var/log run:/run; do mount --bind "$0/${dir%%:*}" "${dir#*:}"; done; exec "$@"' \
    "$work/host-$1" "${@:2}"
}
