#!/usr/bin/env bash
# Owns: the communicator of several hosts, on one: mpirun starts the ranks, and each run of PER_HOST ranks takes itself for a
# host. Arguments: the program test_comm.
set -euo pipefail
command -v mpirun >/dev/null || { echo 'skipped: no mpirun; apt-get install openmpi-bin' && exit 77; }
memory=$(mktemp)
trap 'rm -f "$memory"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun -n 1 true </dev/null >"$memory" 2>&1 || { echo "skipped: mpirun starts nothing here: $(cat "$memory")" && exit 77; } # as without any network

# ranks SHARD PER_HOST: blocks of every size, and hosts that cut groups anywhere.
while read -r ranks shard per_host; do
  : >"$memory"
  mpirun -n "$ranks" --oversubscribe --bind-to none --mca btl self,vader,tcp "$1" "$shard" "$per_host" "$memory" </dev/null ||
    { echo "FAILED: $ranks ranks, shards of $shard, $per_host ranks a host" >&2 && exit 1; }
done <<'END'
2 2 1
4 4 2
4 2 2
4 1 2
4 2 1
4 4 3
6 2 3
6 6 4
END
