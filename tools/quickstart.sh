#!/usr/bin/env bash
# Owns: from a fresh Debian 12 to a trained model: packages, a release in build/, a plan, a short training run of a
# small GPT with 2 ranks, a drawing of its schedule and a sample. Later runs skip what is done.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
Examples:
  tools/quickstart.sh
  tools/quickstart.sh --data /path/to/text.txt --steps 500

Options:
  --data PATH   train on this text file or folder (repeatable; default: the licence texts that every Debian carries)
  --steps N     optimizer steps (default: 600, about a minute)
  --out DIR     where plan, weights and drawing go (default: out/quickstart)
  --force       train again even when the weights are there
TEXT
}

data=() steps=600 out=$root/out/quickstart force=no
while [ $# -gt 0 ]; do
  case $1 in
  --data) data+=("$(realpath "${2:?--data needs a path}")") && shift 2 ;;
  --steps) steps=${2:?--steps needs a number} && shift 2 ;;
  --out) out=$(realpath -m "${2:?--out needs a folder}") && shift 2 ;;
  --force) force=yes && shift ;;
  -h | --help) usage && exit 0 ;;
  *) usage >&2 && echo "error: unknown option $1" >&2 && exit 64 ;;
  esac
done

# Regular files only: GPL is a link to GPL-3.
default_data() { find /usr/share/common-licenses -type f | sort; }

# What an earlier training of ours left, which this one does not go on from. What another run left stays: `run` refuses to write there.
clear_out() {
  [ ! -e "$out/trained-on" ] || rm -rf "$out"/step-* "$out/model.safetensors"
}

train() {
  local arguments=() path
  for path in "${data[@]}"; do arguments+=(--data "$path"); done
  clear_out
  build/fsdpc run "$out/quickstart.plan" "${arguments[@]}" --steps "$steps" --metrics "$out/metrics.jsonl" --save "$out"
  printf '%s\n' "${data[@]}" "$steps" >"$out/trained-on"
}

# The weights are those of this model, this data and this number of steps.
is_trained() {
  [ "$force" = no ] && [ "$out/model.safetensors" -nt models/quickstart.fsdp ] &&
    printf '%s\n' "${data[@]}" "$steps" | cmp -s - "$out/trained-on"
}

# "loss: first -> last"; fails when it did not fall.
report_loss() {
  awk '/"reason": *"step"/ && match($0, /"loss": *[-+.0-9eE]+/) {
         loss = substr($0, RSTART, RLENGTH); sub(/.*: */, "", loss); n++
         if (n <= 5) { head += loss; heads++ }
         tail[n % 5] = loss
       }
       END {
         if (!n) { print "no step was trained" > "/dev/stderr"; exit 1 }
         for (i in tail) { sum += tail[i]; tails++ }
         printf "loss: %.3f at the start, %.3f at the end, over %d steps\n", head / heads, sum / tails, n
         exit !(sum / tails < head / heads)
       }' "$out/metrics.jsonl" || die "the loss did not fall"
}

main() {
  [ "${#data[@]}" -gt 0 ] || mapfile -t data < <(default_data)
  [ "${#data[@]}" -gt 0 ] || die "no text found in /usr/share/common-licenses; give --data PATH"
  require_packages "${build_packages[@]}"
  build_release
  cd "$root"
  [ -d "$out" ] || { mkdir -p "$out" && : >"$out/trained-on"; } # which makes it ours

  say "planning models/quickstart.fsdp for 2 ranks"
  build/fsdpc plan models/quickstart.fsdp --ranks 2 -o "$out/quickstart.plan"
  build/fsdpc draw "$out/quickstart.plan" --timeline "$out/quickstart.svg"

  if is_trained; then
    say "already trained: $out/model.safetensors (--force trains again)"
  else
    say "training with 2 ranks"
    train
  fi
  report_loss

  say "a sample"
  build/fsdpc generate models/quickstart.fsdp --weights "$out" --prompt "The " --tokens 200 --seed 1
  printf '\n'
  say "done: weights and metrics in $out, the schedule in $out/quickstart.svg"
}
main
