#!/usr/bin/env bash
# each of eleven planted bugs is found within 2 minutes, ten of them by the simulator
. "$(dirname "$0")/lib.sh"
make -C "$top" --no-print-directory mutants
