#!/usr/bin/env bash
# eleven planted bugs are each found within 2 minutes, ten of them by the simulator
. "$(dirname "$0")/lib.sh"
make -C "$top" --no-print-directory mutants
