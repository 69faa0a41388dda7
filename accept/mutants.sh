#!/usr/bin/env bash
# eight planted bugs are each found by the simulator within 2 minutes
. "$(dirname "$0")/lib.sh"
make -C "$top" --no-print-directory mutants
