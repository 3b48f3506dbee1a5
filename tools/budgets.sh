#!/usr/bin/env bash
# Owns: how often a larger budget's plan is slower than a smaller one's: models at rising budgets of whole GiB, each plan beside the
# best of those before it. With `--thorough` none may be.
#
#   [OPTIONS=--thorough] tools/budgets.sh [MODEL:RANKS:CLUSTER:FROM:STEP:TO ...]
#
# prints the slower ones, then how many of how many plans they are
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"
cd "$root"
[ -x build/fsdpc ] || build_release >&2
require_tool jq
if [ $# -eq 0 ]; then
  for cluster in dgx-h100 ethernet-a100; do
    set -- "$@" gpt2:8:$cluster:1:1:12 llama3.2-1b:8:$cluster:4:4:40 gpt2-xl:8:$cluster:2:2:40 llama3-8b:8:$cluster:12:4:80 \
      llama3-70b:64:$cluster:18:2:60 gpt3-175b:512:$cluster:20:4:80
  done
fi

for row in "$@"; do
  IFS=: read -r model ranks cluster from step to <<<"$row"
  for gib in $(seq "$from" "$step" "$to"); do
    build/fsdpc plan "models/$model.fsdp" --ranks "$ranks" --cluster "models/clusters/$cluster.fsdp" --memory "${gib}GiB" --json ${OPTIONS:-} 2>/dev/null |
      jq -r --arg model "$model on $cluster" --arg gib "$gib" 'select(.fits) | "\($model)\t\($gib)\t\(.step_ns)"' || true
  done
done | awk -F'\t' '
  $1 != model { model = $1; best = $3 }
  $3 > best { slower++; more = 100 * ($3 / best - 1); if (more > worst) worst = more; printf "%s, %d GiB: %.3f %% slower\n", $1, $2, more }
  $3 < best { best = $3 }
  { plans++ }
  END { printf "slower than with less: %d of %d plans, by at most %.2f %%\n", slower, plans, worst }'
