#!/usr/bin/env bash
# run x -- bash works at a terminal, and run in run shows the inner lock's variables
. "$(dirname "$0")/lib.sh"
cluster_start 1
cd "$work"
tmux="tmux -L lockstep-accept-$$ -f /dev/null"
on_exit+=("$tmux kill-server")
$tmux new-session -d -x 120 -y 40 "env PS1='outer> ' bash --norc"
type() { $tmux send-keys "$1" Enter; }
screen() { $tmux capture-pane -p; }
expect() { local end=$((SECONDS + 15)); until screen | grep -qE "$1"; do [ $SECONDS -lt $end ] || { screen; fail "no \"$1\" on the screen"; }; sleep 0.1; done; }
type "export LOCKSTEP_ENDPOINTS=$LOCKSTEP_ENDPOINTS PATH=$(dirname "$lockstep"):\$PATH"
type "PS1='inner> ' lockstep run term/a -- bash --norc"
expect '^inner>'
type 'echo lock=$LOCKSTEP_LOCK tty=$(test -t 0 && echo yes)'
expect '^lock=term/a tty=yes'
type 'sleep 100'; sleep 0.5; $tmux send-keys C-c
type 'echo after=$?'
expect '^after=130'
type 'cat'; sleep 0.3; type 'typed'; sleep 0.3; $tmux send-keys C-d
expect '^typed'
say "bash under run reads the keyboard; ctrl-C reaches its job and not the lock"
type 'sleep 50'; sleep 0.3; $tmux send-keys C-z; sleep 0.3; type 'jobs; kill %1'
expect 'Stopped'
say "ctrl-Z stops a job of that bash"
type "lockstep run term/b -- sh -c 'echo in=\$LOCKSTEP_LOCK/\$LOCKSTEP_TOKEN/\$LOCKSTEP_SESSION'; echo out=\$LOCKSTEP_LOCK/\$LOCKSTEP_TOKEN/\$LOCKSTEP_SESSION"
expect '^in=term/b/[0-9]+/[0-9a-f]+'
expect '^out=term/a/[0-9]+/[0-9a-f]+'
inner=$(screen | grep -oE '^in=term/b/[0-9]+' | tail -1); outer=$(screen | grep -oE '^out=term/a/[0-9]+' | tail -1)
[ "${inner##*/}" -gt "${outer##*/}" ] || fail "$inner and $outer"
say "run in run: $inner, $outer"
type 'exit 7'; expect '^outer>'
type 'echo code=$?'
expect '^code=7'
type 'lockstep run term/a -- sh -c "read line; echo got \$line"'; sleep 0.5; type 'hello'
expect '^got hello'
say "the exit code comes back, and the terminal works again"
