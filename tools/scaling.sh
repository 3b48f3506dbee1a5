#!/usr/bin/env bash
# Owns: how planning grows with depth: processor time and peak memory of `fsdpc plan` for a generated model of 100 to 10,000
# layers, outer choices pinned, memory in proportion to layers; a Markdown table and a drawing.
#
#   tools/scaling.sh [LAYERS ...]     prints the table, draws docs/images/scaling.svg
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"
cd "$root"
[ -x build/fsdpc ] || build_release >&2
[ -x /usr/bin/time ] || die "GNU time is needed: apt-get install time"
require_tool jq
[ $# -gt 0 ] || set -- 100 300 1000 3000 10000
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
runs=7 # the least time of so many counts: other work on the machine only adds to it

# A model of the Llama family, narrow, so that thousands of layers are a size that somebody could train.
write_model() { # LAYERS
  cat <<TEXT
use "$root/models/families/llama.fsdp"

model deep {
  let vocab = 32000, ctx = 1024, d = 1024, heads = 16, kv_heads = 8, ffn = 4096, layers = $1

  input tokens: int[batch, ctx]
  input targets: int[batch, ctx]

  x = llama(tokens, vocab, d, heads, kv_heads, ffn, layers) as model
  loss = cross_entropy(linear(x, vocab, bias = false) as lm_head, targets, chunk = 2048)
}

train { optimizer adamw { lr 1e-4 }  batch 64  precision bf16 reduce f32  clip 1.0  seed 1 }
cluster { use "$root/models/clusters/dgx-h100.fsdp"  nodes 8 }
TEXT
}

# Room for about half of what no recomputation would keep.
plan() { # LAYERS
  /usr/bin/time -o "$scratch/time" -f '%U %S %M' build/fsdpc plan "$scratch/deep.fsdp" --memory "$((1024 + $1 * 8))MiB" \
    --strategy full_shard --micro-batch 1 --gather micro_batch --reduce micro_batch --offload none --json "${@:2}" >"$scratch/json"
}

echo '| layers | instructions | processor time | a layer | peak memory | gap |'
echo '|---|---|---|---|---|---|'
for layers in "$@"; do
  write_model "$layers" >"$scratch/deep.fsdp"
  : >"$scratch/runs"
  for ((i = 0; i < runs; i++)); do
    plan "$layers"
    awk '{ printf "%.2f %d\n", $1 + $2, $3 / 1024 }' "$scratch/time" >>"$scratch/runs"
  done
  plan "$layers" -o "$scratch/plan"
  read -r seconds mib < <(sort -n "$scratch/runs" | head -n 1)
  echo "$layers $seconds $mib" >>"$scratch/points"
  gap=$(jq '.gap * 10000 | round / 100' "$scratch/json")
  awk -v l="$layers" -v s="$seconds" -v m="$mib" -v g="$gap" -v i="$(grep -c '^  i[0-9]' "$scratch/plan")" \
    'BEGIN { printf "| %d | %d | %.2f s | %.0f us | %d MiB | %.2f %% |\n", l, i, s, s / l * 1e6, m, g }'
done

# Two panels on logarithmic axes: points, and the straight line of growth in proportion from the last one down.
awk '
  function log10(x) { return log(x) / log(10) }
  function px(x) { return left + (log10(x) - 1.8) / 2.4 * 250 }
  function py(y) { return 230 - (log10(y) - low) / (high - low) * 190 }
  function panel(at, title, unit, lo, hi, column,   i, e) {
    left = at; low = lo; high = hi
    printf "<text x=\"%d\" y=\"22\" font-weight=\"bold\">%s</text>\n", left, title
    for (e = 2; e <= 4; e++)
      printf "<line class=\"grid\" x1=\"%.1f\" y1=\"40\" x2=\"%.1f\" y2=\"230\"/><text x=\"%.1f\" y=\"246\" text-anchor=\"middle\">%d</text>\n", px(10 ^ e), px(10 ^ e), px(10 ^ e), 10 ^ e
    for (e = lo; e <= hi; e++)
      printf "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g %s</text>\n", left, py(10 ^ e), left + 250, py(10 ^ e), left - 6, py(10 ^ e) + 4, 10 ^ e, unit
    printf "<line class=\"even\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", px(layers[1]), py(value[column, n] * layers[1] / layers[n]), px(layers[n]), py(value[column, n])
    printf "<polyline points=\""
    for (i = 1; i <= n; i++) printf "%.1f,%.1f ", px(layers[i]), py(value[column, i])
    printf "\"/>\n"
    for (i = 1; i <= n; i++) printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n", px(layers[i]), py(value[column, i]), px(layers[i]) + 2, py(value[column, i]) - 9, value[column, i]
    printf "<text x=\"%d\" y=\"264\" text-anchor=\"middle\">layers</text>\n", left + 125
  }
  { layers[++n] = $1; value[2, n] = $2; value[3, n] = $3 }
  END {
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 680 276\" width=\"680\" height=\"276\" font-family=\"sans-serif\" font-size=\"11\">"
    print "<style>.grid{stroke:#ddd} .even{stroke:#999;stroke-dasharray:4 3} polyline{fill:none;stroke:#0a66c2;stroke-width:2} circle{fill:#0a66c2}</style>"
    print "<rect width=\"680\" height=\"276\" fill=\"#fff\"/>"
    panel(60, "processor time (dashed: in proportion)", "s", -2, 1, 2)
    panel(410, "peak memory", "MiB", 0, 4, 3)
    print "</svg>"
  }' "$scratch/points" >docs/images/scaling.svg
