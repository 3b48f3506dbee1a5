#!/usr/bin/env bash
# Owns: fsdpc beside PyTorch on this machine, in a virtual environment that may be thrown away: losses, step times, memory,
# overlap and predictions, and exported policies.
#
#   tools/against-pytorch.sh                        everything; an hour on 2 cores
#   tools/against-pytorch.sh losses|speed|memory|overlap|predicted [CELL ...] [--pairs N] [--compile]
#   tools/against-pytorch.sh policies               what `fsdpc export` wrote, under PyTorch; five minutes
#
# FSDPC_TORCH_VENV names the environment (default: /tmp/fsdpc-torch, made when missing: 5 GB, for PyTorch from the Python
# package index brings CUDA's libraries along). What it printed last is in docs/against-pytorch.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"
venv=${FSDPC_TORCH_VENV:-/tmp/fsdpc-torch}

if [ ! -x "$venv/bin/python" ]; then
  say "PyTorch into $venv"
  python3 -m venv "$venv" || die "python3 -m venv failed: apt-get install python3-venv"
  "$venv/bin/pip" install --quiet torch numpy safetensors
fi
require_packages "${build_packages[@]}"
build_release
"$venv/bin/python" -c 'import torch; print("PyTorch", torch.__version__)'
policies() {
  "$venv/bin/python" -c 'import accelerate, transformers' 2>/dev/null || "$venv/bin/pip" install --quiet accelerate transformers
  "$venv/bin/python" "$root/tools/pytorch/policies.py"
}
if [ "${1:-}" = policies ]; then
  policies
  exit
fi
if [ $# -gt 0 ]; then
  exec "$venv/bin/python" "$root/tools/pytorch/compare.py" "$@"
fi
for what in losses speed memory overlap predicted; do
  say "$what"
  "$venv/bin/python" "$root/tools/pytorch/compare.py" "$what"
done
say policies
policies
