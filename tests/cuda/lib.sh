# shellcheck shell=bash
# Owns: what the scripts of this folder share. Each is run as: SCRIPT FSDPC_FAKE COMPARE.
source "$(dirname "${BASH_SOURCE[0]}")/../cli/lib.sh"
# shellcheck disable=SC2034
pinned=("${one_plan[@]}")

# Kernels are interpreted thread by thread, so that a step takes as long as it has tokens: four samples, one for each of four ranks.
mkdir fixtures
for model in gpt-tiny llama-tiny heads-tiny; do
  sed 's/tokens_per_step 128/tokens_per_step 64/' "$fixtures/$model.fsdp" >fixtures/$model.fsdp
done
# Of the heads that are normalised, a part turns.
sed -i 's/, theta = 10000)/, theta = 10000, dims = 6)/' fixtures/heads-tiny.fsdp
[ "$(grep -c 'dims = 6' fixtures/heads-tiny.fsdp)" = 2 ] || fail 'not queries and keys of which a part turns'
cp "$fixtures/tokens.bin" fixtures
fixtures=$PWD/fixtures
