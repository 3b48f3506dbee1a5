#!/usr/bin/env bash
# Owns: units of another size than auto chooses, set by hand, gain nothing worth having.
#   tests/planner/sizes.sh FSDPC
set -euo pipefail
fsdpc=$1
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Where memory is this tight, the best units lie between the sizes that auto begins with.
step() { "$fsdpc" plan models/gpt2.fsdp --cluster models/clusters/hgx-b200.fsdp --ranks 8 --micro-batch 1 --memory 578MiB --wrap "$1" --json |
  sed -n 's/.*"step_ns": *\([0-9]*\).*/\1/p'; }

auto=$(step auto)
for size in 4M 6M 8M 13M 20M; do
  by_hand=$(step "size:$size")
  [ $((auto * 1000)) -le $((by_hand * 1005)) ] || { echo "auto takes $auto ns, units of $size elements $by_hand ns" >&2; exit 1; }
done
