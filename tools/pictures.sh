#!/usr/bin/env bash
# Owns: the pictures of plans under docs/images, drawn anew from the plans of today: README.md shows them beside their commands.
#
#   tools/pictures.sh     needs Graphviz; with Chromium also draws the report
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"
cd "$root"
[ -x build/fsdpc ] || build_release >&2
images=docs/images
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

build/fsdpc draw models/fsdp-figure2.fsdp --svg $images/figure2-units.svg --timeline $images/figure2-timeline.svg
build/fsdpc draw models/llama3-405b.fsdp --ranks 1024 --svg $images/llama3-405b-units.svg
build/fsdpc draw models/llama3-8b.fsdp --ranks 8 --memory 40GiB --timeline $images/llama3-8b-40GiB.svg --html "$scratch/report.html"
if command -v chromium >/dev/null; then
  chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,1010 --screenshot=$images/llama3-8b-report.png \
    "file://$scratch/report.html" 2>"$scratch/log" || die "$(cat "$scratch/log")"
else
  echo "$images/llama3-8b-report.png is as it was: Chromium draws it" >&2
fi
