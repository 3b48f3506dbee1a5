#!/usr/bin/env bash
# Owns: docs/json.md has the keys that are printed, and no others: of each command, of all that it can print together.
source "$(dirname "$0")/lib.sh"

page=$root/docs/json.md model=$root/tests/fixtures/gpt-tiny.fsdp large=$root/models/llama3-8b.fsdp

# keep CODE NAME ARGUMENT...: what a command prints, as NAME.json.
keep() {
  expect "$1" "${@:3}"
  cp out "$2.json"
}
documented() { "$compare" keys "$page" "$@" || fail "docs/json.md, $1: see above"; }

keep 1 check-width check "$root/tests/frontend/errors/attention-heads.fsdp" --json
keep 1 check-name check "$root/tests/frontend/errors/undefined-layer.fsdp" --json
documented check check-*.json

keep 0 plan-fits plan "$large" --ranks 8 --memory 40GiB --wrap block --micro-batch 1 --strategy full_shard --json
keep 3 plan-large plan "$large" --ranks 8 --memory 1GiB --wrap block --micro-batch 1 --strategy full_shard --json
said plan-large.json '"gap": null' # and not 0: nothing is known
sed 's/host_memory 220GB/host_memory 1GB/' "$root/models/clusters/dgx-a100-80.fsdp" >small.fsdp
keep 3 plan-host plan "$large" --cluster small.fsdp --ranks 8 --offload optimizer --wrap block --micro-batch 1 --strategy full_shard --json
# Readers of JSON are warned of what the text warns of, in its words: a budget that leaves nothing for what lies beside the arena.
warned_alike() { # FILE.json ARGUMENT...: the command without --json
  expect 0 "${@:2}"
  said "$1" "$(sed -n 's/^  warning: //p' out | grep .)"
}
ample=(plan "$large" --ranks 8 --memory 79GiB --wrap block --micro-batch 2 --strategy full_shard)
keep 0 plan-ample "${ample[@]}" --json
warned_alike plan-ample.json "${ample[@]}"
said plan-fits.json '"warnings": []'
documented plan plan-*.json

fsdp2=(--executor pytorch-fsdp2-compiled --ranks 8 --wrap block --micro-batch 1)
keep 0 executor-fits plan "$large" "${fsdp2[@]}" --json
keep 3 executor-large plan "$large" "${fsdp2[@]}" --memory 4GiB --json
documented 'plan --executor' executor-*.json

keep 0 max plan "$model" --ranks 2 --wrap block --memory 350KiB --max layers --json
documented 'plan --max' max.json

keep 0 predict predict "$large" "${fsdp2[@]}" --checkpoint full --json
said predict.json '"warnings": []'
crowded=(predict "$large" "${fsdp2[@]}" --ranks 4 --micro-batch 2 --checkpoint full)
keep 0 predict-crowded "${crowded[@]}" --json
warned_alike predict-crowded.json "${crowded[@]}"
documented predict predict.json predict-crowded.json

# One wording of speed wherever it is printed.
expect 0 predict "$large" "${fsdp2[@]}" --checkpoint full
said out ' tokens/s a rank'
expect 0 plan "$large" "${fsdp2[@]}"
said out ' tokens/s a rank'
expect 0 plan "$model" --ranks 2
said out ' tokens/s a rank'

for name in block whole; do
  expect 0 plan "$model" --ranks 2 --strategy full_shard --reshard yes --wrap "$name" -o "$name.plan"
done
keep 0 diff diff block.plan whole.plan --json
documented diff diff.json

keep 0 tune tune "$model" --ranks 2,3 --memory 64MiB,10KiB --micro-batch 1 --wrap block --cluster "$root/tests/view/priced.fsdp" --json
documented tune tune.json

sed 's/ wait e[0-9 e]*//' block.plan >broken.plan
keep 1 verify verify broken.plan --json
documented verify verify.json

FSDPC_MODELS=/nowhere keep 0 doctor doctor --json
documented doctor doctor.json

sed 's/^  precision .*/  precision f16/' "$model" >half.fsdp
train first "$model" --ranks 1 --steps 2 --eval "$fixtures/tokens.bin"
train half half.fsdp --ranks 1 --steps 1 --init first.weights/model.safetensors
documented 'run --metrics' first.jsonl half.jsonl
