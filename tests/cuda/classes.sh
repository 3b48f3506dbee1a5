#!/usr/bin/env bash
# Owns: classes whose number is no multiple of 8, of which the CUDA backend computes the last ones by kernels of its own. Run as: classes.sh FSDPC_FAKE COMPARE.
source "$(dirname "$0")/lib.sh"

# Only the last three of 67 occur, so that theirs are the rows that learn.
for ((i = 0; i < 2000; i++)); do printf '%b' "\\x$((40 + i * i % 7 % 3))\\0"; done >last.bin

# Whatever the gradients' type. learns NAME SED-SCRIPT: the CPU's losses and norms, as closely as sums of bf16 allow.
learns() {
  sed -e 's/precision f32 reduce f32/precision bf16 reduce f32/; s/lr 3e-3 cosine min_lr 3e-4 warmup 4/lr 1e-2/' -e "$2" "$fixtures/gpt-tiny.fsdp" >"$1.fsdp"
  for backend in cpu cuda; do
    expect 0 run "$1.fsdp" "${pinned[@]}" --ranks 1 --steps 4 --backend $backend --data last.bin --metrics "$1-$backend.jsonl" --threads 1 --quiet
  done
  "$compare" metrics "$1-cuda.jsonl" "$1-cpu.jsonl" 2e-3
}
learns tied ''
learns bias 's/linear(x, vocab, weight = wte)/linear(x, vocab, bias = true) as head/'
learns chunks 's/linear(x, vocab, weight = wte), targets/&, chunk = 24/'
learns narrow 's/reduce f32/reduce bf16/'
