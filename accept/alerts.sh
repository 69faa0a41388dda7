#!/usr/bin/env bash
# promtool accepts the alert rules and the scrape configuration, and the tests of the rules pass; each alert has a test and is in docs/operations.md
. "$(dirname "$0")/lib.sh"
PATH=$top/.bin:$PATH
command -v promtool >/dev/null || "$top/scripts/install-promtool"
cd "$top/deploy/prometheus"
promtool check config prometheus.yml >"$work/out" 2>&1 || { cat "$work/out"; fail "prometheus.yml"; }
promtool test rules alerts_test.yml >"$work/out" 2>&1 || { cat "$work/out"; fail "alerts_test.yml"; }
count=0
for alert in $(sed -n 's/^ *- alert: //p' alerts.yml); do
  awk -v alert="$alert" '$2 == alert {on = 1; next} /alertname:/ {on = 0} on && /exp_labels/ {found = 1} END {exit !found}' alerts_test.yml || fail "$alert never comes in a test"
  grep -q "$alert" "$top/docs/operations.md" || fail "docs/operations.md lacks $alert"
  count=$((count + 1))
done
[ $count -ge 17 ] || fail "only $count alerts"
say "$count alerts, each in a test and in docs/operations.md"
