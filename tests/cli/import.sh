#!/usr/bin/env bash
# Owns: `fsdpc import`: import/NAME/config.json becomes import/NAME.fsdp, which checks, plans and is laid out canonically;
# what cannot be said in a family is an error that names its key; weights that were exported come back by --init.
source "$(dirname "$0")/lib.sh"
configs=$root/tests/cli/import

for config in "$configs"/*/config.json; do
  name=$(basename "$(dirname "$config")")
  expect 0 import "$(dirname "$config")" -o "$name.fsdp"
  diff -u "$configs/$name.fsdp" "$name.fsdp" || fail "import of $name has changed"
  silent out
  expect 0 import "$config"
  diff -u "$configs/$name.fsdp" out || fail "without -o the text of $name is another"
  expect 0 check "$name.fsdp"
  expect 0 fmt --check "$name.fsdp"
done
# The same parameters as in the files that were written by hand; whichever plan is found soonest.
params() { "$fsdpc" plan "$1" --cluster dgx-h100 --ranks 8 --wrap block --checkpoint full --prefetch 1 --json | grep -oE '"params": *[0-9]+' | head -n 1; }
[ "$(params Llama-3.2-1B.fsdp)" = "$(params "$root/models/llama3.2-1b.fsdp")" ] || fail 'another Llama 3.2 1B than ours'
[ "$(params Qwen3-0.6B.fsdp)" = "$(params "$root/models/qwen3-0.6b.fsdp")" ] || fail 'another Qwen3 0.6B than ours'
[ "$(params gpt2.fsdp)" = "$(params "$root/models/gpt2.fsdp")" ] || fail 'another GPT-2 than ours'
# Counts of the others: their model cards on Hugging Face; of Granite and Phi-2, what transformers makes of the configuration.
counts=(Mistral-7B-v0.1 7241732096 Qwen2.5-0.5B 494032768 Phi-3-mini-4k-instruct 3821079552 OLMo-2-0425-1B 1484916736
  granite-4.1-3b 3402836480 granite-4.2-3b 3659737600 stablelm-3b-4e1t 2795443200 phi-2 2779683840)
for ((i = 0; i < ${#counts[@]}; i += 2)); do
  [ "$(params "${counts[i]}.fsdp")" = "\"params\": ${counts[i + 1]}" ] || fail "another ${counts[i]} than was published"
done
# Multipliers are layers, of which a block has three, unless they are 1.
scales() { "$fsdpc" draw "$1" --set layers=1 --cluster dgx-h100 --ranks 8 --dot scales.dot && grep -c '>scale_fwd<' scales.dot; }
[ "$(scales granite-4.1-3b.fsdp)" = 5 ] || fail 'not a layer for each multiplier'
[ "$(scales granite-4.2-3b.fsdp)" = 1 ] || fail 'a layer for multipliers of 1'
expect 0 import "$configs/gpt2" -o /dev/stdout
expect 0 import "$configs/gpt2"
said err '"attn_pdrop" is left out: the model trains without dropout'
expect 0 import "$configs/phi-2"
[ "$(cat err)" = "note: $configs/phi-2/config.json: \"resid_pdrop\" is left out: the model trains without dropout" ] || fail 'not that dropout alone'
expect 0 import "$configs/llama-v5"
said err '"surprise" is not known, and is left out'
mkdir red && sed 's/"surprise"/"\\u001b[31mred"/' "$configs/llama-v5/config.json" >red/config.json
expect 0 import red
said err '"\u001B[31mred" is not known, and is left out'

# --- windows: sequences are no longer, so that none is cut, and it is said; where no layer has one, nothing is.
# context NAME SED CTX: of NAME's config.json, changed, as imported; what was said in ./err
context() {
  mkdir -p changed
  sed "$2" "$configs/$1/config.json" >changed/config.json
  cmp -s "$configs/$1/config.json" changed/config.json && fail "nothing changed by: $2"
  expect 0 import changed
  said out "ctx = $3,"
}
capped() { context "$@" && said err '"sliding_window" is ' && said err 'so ctx is no larger' && said out "a window of $3 there"; }
free() {
  context "$@"
  silent err
  if grep -q window out; then fail "a window by: $2"; fi
}
capped Mistral-7B-v0.1 's/"sliding_window":4096/"sliding_window":32767/' 32767
free Mistral-7B-v0.1 's/"sliding_window":4096/"sliding_window":32768/' 32768
free Mistral-7B-v0.1 's/"sliding_window":4096/"sliding_window":null/' 32768
context Mistral-7B-v0.1 's/"sliding_window":4096,//' 4096 # what transformers takes then
capped Phi-3-mini-4k-instruct 's/"sliding_window":2047/"sliding_window":1000/' 1000
free Phi-3-mini-4k-instruct 's/"sliding_window":2047,//' 4096
free Phi-3-mini-4k-instruct 's/"sliding_window":2047,//; s/"original_max_position_embeddings":4096/"original_max_position_embeddings":1024/' 1024
free Qwen2.5-0.5B 's/"sliding_window":32768/"sliding_window":512/' 32768 # use_sliding_window is false
using='s/"use_sliding_window":false/"use_sliding_window":true/'
free Qwen2.5-0.5B "$using; s/\"sliding_window\":32768/\"sliding_window\":512/" 32768 # all 24 layers are below max_window_layers
capped Qwen2.5-0.5B "$using; s/\"sliding_window\":32768/\"sliding_window\":512/; s/\"max_window_layers\":24/\"max_window_layers\":23/" 512
free Qwen2.5-0.5B "$using; s/\"sliding_window\":32768,//; s/\"max_window_layers\":24,//" 32768 # 28 layers are, unless stated
context Qwen2.5-0.5B "$using; s/\"sliding_window\":32768,//; s/\"max_window_layers\":24/\"max_window_layers\":0/" 4096
free qwen3-windows 's/"sliding_attention"/"full_attention"/' 4096
free qwen3-windows 's/"use_sliding_window": true/"use_sliding_window": false/' 4096
free ministral-windows 's/"sliding_attention"/"full_attention"/' 8192
free ministral-windows 's/"sliding_window": 512/"sliding_window": null/' 8192
capped ministral-windows 's/"layer_types": \[[^]]*\],//' 512 # all layers have it then
context ministral-windows 's/"sliding_window": 512,//' 4096 # what transformers takes then
said out 'a window of 4096 there'
capped llama-v5 's/"vocab_size"/"sliding_window": 100, &/; s/, "surprise": 3//' 100

# --- what is absent, and null, is what transformers takes it for
context Mistral-7B-v0.1 's/"num_key_value_heads":8,//' 4096
said out 'kv_heads = 8,'
context Mistral-7B-v0.1 's/"num_key_value_heads":8/"num_key_value_heads":null/' 4096
said out 'kv_heads = 32,'
context Phi-3-mini-4k-instruct 's/"num_key_value_heads":32,//; s/"rms_norm_eps":1e-05,//; s/"rope_theta":10000.0,//' 2047
said out 'kv_heads = 32,'
said out 'eps = 1e-05,'
said out 'theta = 10000)'
context OLMo-2-0425-1B 's/"rms_norm_eps":1e-06,//; s/"max_position_embeddings":4096,//' 2048
said out 'eps = 1e-05,'
context OLMo-2-0425-1B 's/"attention_bias":false/"attention_bias":true/' 4096
said out 'attention_bias = true)'
# Of two keys with rotary parameters the one that says something; both where they say the same.
llama3='"rope_type":"llama3","factor":32.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192'
for other in '{}' '{"rope_type":"default"}' "{\"type\":\"llama3\",$llama3}" "{$llama3,\"rope_theta\":5e5}"; do
  context Llama-3.2-1B "s/\"rope_theta\":500000.0,//; s/\"rope_scaling\":/\"rope_theta\":5e5,\"rope_scaling\":$other,\"rope_parameters\":/" 8192
  said out 'theta = 500000,'
  said out 'scaling = llama3, factor = 32, low = 1, high = 4, original = 8192)'
done
context Llama-3.2-1B 's/"rope_theta":500000.0,//; s/"rope_scaling":{/"rope_parameters":{},&"rope_theta":6e5,/' 8192
said out 'theta = 600000, scaling = llama3,'
# Granite: scores are not divided by the root of a head's width where no multiplier says so.
context granite-4.1-3b 's/"attention_multiplier":0.015625,//; s/"embedding_multiplier":12.0,//; s/"residual_multiplier":0.22,//; s/"logits_scaling":10.0,//' 131072
said out 'embedding_multiplier = 1, attention_multiplier = 1, residual_multiplier = 1, logits_scaling = 1)'
context granite-4.1-3b 's/"num_key_value_heads":8,//; s/"rms_norm_eps":1e-05,//; s/"rope_theta":10000000,//; s/"max_position_embeddings":131072,//; s/"tie_word_embeddings":true,//' 2048
said out 'kv_heads = 40,'
said out 'eps = 1e-06,'
said out 'theta = 10000,'
said out 'linear(x, vocab, bias = false)'
context granite-4.1-3b 's/"attention_bias":false/"attention_bias":true/; s/"mlp_bias":false/"mlp_bias":true/; s/"bos_token_id"/"head_dim":48,&/' 131072
said out 'head_dim = 48,'
said out 'attention_bias = true, mlp_bias = true,'
context granite-4.1-3b 's/"rope_scaling":null/"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192}/' 8192
said out 'scaling = llama3, factor = 8, low = 1, high = 4, original = 8192,'
# How much of a head turns: the rotary parameters' word before the one beside them, and before the class's default.
part='"partial_rotary_factor":0.75'
context Phi-3-mini-4k-instruct "s/\"model_type\"/$part,&/" 2047
said out 'theta = 10000, rotary = 72)'
context Phi-3-mini-4k-instruct "s/\"rope_scaling\":null/\"rope_scaling\":{\"partial_rotary_factor\":0.5},$part/" 2047
said out 'rotary = 48)'
context Phi-3-mini-4k-instruct 's/"rope_scaling":null/"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.26}/' 2047
said out 'rotary = 24)' # of 24.96, as transformers cuts it
context phi-2 's/"partial_rotary_factor":0.4,//' 2048
said out 'rotary = 40, kind = tanh)'
context phi-2 's/"gelu_new"/"gelu"/; s/"partial_rotary_factor":0.4/"partial_rotary_factor":1/; s/"resid_pdrop":0.1/"resid_pdrop":0.0/' 2048
said out 'theta = 10000, kind = erf)'
said out 'linear(x, vocab, bias = true) as lm_head'
silent err
context phi-2 's/"tie_word_embeddings":false/"tie_word_embeddings":true/; s/"num_key_value_heads":32/"num_key_value_heads":null/; s/"layer_norm_eps":1e-05,//' 2048
said out 'linear(x, vocab, bias = true, weight = model.embed_tokens) as lm_head'
said out 'eps = 1e-05,'
said out 'kv_heads = 32,'
context stablelm-3b-4e1t 's/"partial_rotary_factor":0.25,//; s/"hidden_size":2560/"hidden_size":5120/; s/"use_qkv_bias":false/"use_qkv_bias":true/' 4096
said out 'rotary = 40, qkv_bias = true)'

# --- errors: refused NAME SED TEXT...: NAME's config.json, changed, is refused with every TEXT and no file is written.
refused() {
  local from=$configs/$1/config.json change=$2 text
  shift 2
  mkdir -p bad
  sed "$change" "$from" >bad/config.json
  cmp -s "$from" bad/config.json && fail "nothing changed by: $change"
  expect 1 import bad -o bad.fsdp
  for text in "$@"; do said err "$text"; done
  [ ! -e bad.fsdp ] || fail "a file was written in spite of: $change"
}
# What the family's file refuses of a configuration: by its words, and what stood there stays.
cp gpt2.fsdp kept.fsdp
mkdir vast && echo '{"model_type":"gpt2","n_layer":1073741824}' >vast/config.json
for output in '' '-o kept.fsdp'; do
  # shellcheck disable=SC2086
  expect 1 import vast $output
  said err 'the count of a repeat must be at most 100000, this is 1073741824'
  silent out
done
cmp gpt2.fsdp kept.fsdp || fail 'a refused import was written'
# A folder's name is cut to what the language takes for one.
long=$(printf 'm%.0s' {1..220})
mkdir "$long" && cp "$configs/gpt2/config.json" "$long"
expect 0 import "$long"
grep -qxE 'model m{200} \{' out || fail 'not the name of the folder, cut'
with() { printf 's|"model_type"|%s, &|' "$1"; } # one entry more
for name in Mistral-7B-v0.1 ministral-windows Qwen2.5-0.5B; do
  refused "$name" "$(with '"attention_bias":true')" 'bad/config.json: "attention_bias" is true' 'models of this class have no such bias'
done
refused Phi-3-mini-4k-instruct 's/"attention_bias":false/"attention_bias":true/' '"attention_bias" is true'
refused Qwen3-0.6B "$(with '"mlp_bias": true')" '"mlp_bias" is true'
refused llama-v5 "$(with '"attention_bias": 1')" '"attention_bias" is 1: it must be true or false'
refused llama-v5 "$(with '"attention_dropout": 0.1')" '"attention_dropout" is 0.1'
refused Phi-3-mini-4k-instruct 's/"resid_pdrop":0.0/"resid_pdrop":0.1/' '"resid_pdrop" is 0.1' 'set it to 0'
refused Phi-3-mini-4k-instruct 's/"embd_pdrop":0.0/"embd_pdrop":0.1/' '"embd_pdrop" is 0.1' 'set it to 0'
refused Phi-3-mini-4k-instruct 's/"attention_dropout":0.0/"attention_dropout":0.1/' '"attention_dropout" is 0.1'
refused Mistral-7B-v0.1 's/"sliding_window":4096/"sliding_window":0/' '"sliding_window" is 0: it must be'
refused qwen3-windows 's/"sliding_attention"/"linear_attention"/' '"layer_types" is ["full_attention","linear_attention"]' 'choose another model'
refused ministral-windows 's/"sliding_attention"/"chunked_attention"/' '"layer_types" is ["chunked_attention","full_attention"]'
refused qwen3-windows 's/"layer_types": \[[^]]*\]/"layer_types": 2/' '"layer_types" is 2'
refused OLMo-2-0425-1B 's/"rope_scaling":null/"rope_scaling":{"rope_theta":3e4},"rope_parameters":{"rope_theta":4e4}/' \
  '"rope_scaling" is {"rope_theta":30000.0}: "rope_parameters" say otherwise'
refused Llama-3.2-1B 's/"rope_scaling":/"rope_parameters":{"rope_theta":4e4},&/' '"rope_parameters" say otherwise'
refused Qwen3-0.6B 's/"rope_scaling": null/"rope_scaling": {"type": "yarn", "factor": 4.0}/' '"rope_scaling" is' 'set it to null'
refused Qwen3-0.6B 's/"rope_scaling": null/"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}/' \
  '"rope_scaling" is' "the family's rotary positions are not scaled"
for name in Phi-3-mini-4k-instruct OLMo-2-0425-1B; do
  refused "$name" 's/"rope_scaling":null/"rope_scaling": {"rope_type": "llama3"}/' '"rope_scaling" is' "the family's rotary positions are not scaled"
done
refused Phi-3-mini-4k-instruct 's/"rope_scaling":null/"rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [1]}/' \
  '"rope_scaling" is' 'its factors count in short sequences too' 'choose another model'
refused llama-biased 's/"partial_rotary_factor": 1.0/"partial_rotary_factor": 0.5/' '"rope_parameters" is' 'a part of each head' 'choose another model'
# Phi-4-mini: a part of each head, by longrope.
refused Phi-3-mini-4k-instruct "s/\"rope_scaling\":null/\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1]},$part/" \
  '"rope_scaling" is' 'its factors count in short sequences too' 'choose another model'
for share in 0.99 0.01 1.5 1e17; do
  refused phi-2 "s/\"partial_rotary_factor\":0.4/\"partial_rotary_factor\":$share/" "\"partial_rotary_factor\" is " "of a head's 80 dims is no even number from 2 to 80"
  refused Phi-3-mini-4k-instruct "s/\"rope_scaling\":null/\"rope_scaling\":{\"partial_rotary_factor\":$share}/" \
    '"rope_scaling" is' "of a head's 96 dims is no even number from 2 to 96"
done
refused phi-2 's/"partial_rotary_factor":0.4/"partial_rotary_factor":0/' '"partial_rotary_factor" is 0: it must be a number above 0'
for entry in rms_norm_eps:1e30 rope_theta:1e300; do
  refused OLMo-2-0425-1B "s/\"${entry%:*}\":[0-9e.-]*/\"${entry%:*}\":${entry#*:}/" "bad/config.json: \"${entry%:*}\" is " 'it must be a number above 0, and at most 1e18'
done
refused Llama-3.2-1B 's/"rope_scaling":{/&"rope_theta":1e300,/' '"rope_scaling" is' 'its rope_theta must be a number above 0, and at most 1e18'
refused phi-2 's/"qk_layernorm":false/"qk_layernorm":true/' '"qk_layernorm" is true' 'models/families/phi.fsdp'
refused phi-2 's/"gelu_new"/"relu"/' '"hidden_act" is "relu": the family has' 'models/families/phi.fsdp'
refused phi-2 's/"rope_scaling":null/"rope_scaling":{"type":"linear","factor":2.0}/' '"rope_scaling" is' 'set it to null'
refused stablelm-3b-4e1t "$(with '"use_parallel_residual":true')" '"use_parallel_residual" is true' 'models/families/stablelm.fsdp'
refused stablelm-3b-4e1t "$(with '"qk_layernorm":true')" '"qk_layernorm" is true' 'heads have norms of their own'
refused stablelm-3b-4e1t "$(with '"hidden_dropout":0.1, "attention_dropout":0.2')" '"hidden_dropout" is 0.1' '"attention_dropout" is 0.2'
refused stablelm-3b-4e1t 's/"hidden_act":"silu"/"hidden_act":"gelu"/' '"hidden_act" is "gelu"'
refused qwen3-windows 's/"rope_parameters": {/&"full_attention": {"rope_theta": 1}, /' '"rope_parameters" is' 'its "full_attention" is not known'
for key in embedding_multiplier:12.0 attention_multiplier:0.015625 residual_multiplier:0.22 logits_scaling:10.0; do
  refused granite-4.1-3b "s/\"${key%:*}\":${key#*:}/\"${key%:*}\":0/" "\"${key%:*}\" is 0: it must be a number above 0"
done
refused granite-4.1-3b 's/"residual_multiplier":0.22/"residual_multiplier":1e-39/' 'must be a number other than 0 that f32 holds, this is 1e-39'
refused granite-4.1-3b 's/"attention_dropout":0.0/"attention_dropout":0.1/' '"attention_dropout" is 0.1' 'set it to 0'
refused granite-4.1-3b 's/"rope_scaling":null/"rope_scaling":{"rope_type":"yarn","factor":4}/' '"rope_scaling" is' 'only the types "llama3" and "default"'
refused llama-v5 "$(with '"partial_rotary_factor": 0.5')" '"partial_rotary_factor" is 0.5' 'choose another model'
refused llama-v5 "$(with '"quantization_config": {"bits": 4}')" '"quantization_config" is {"bits":4}' 'that was quantized'
refused llama-v5 "$(with '"hidden_act": "gelu"')" '"hidden_act" is "gelu"'
refused llama-v5 "$(with '"attention_dropout": 0.1, "partial_rotary_factor": 0.5')" '"attention_dropout"' '"partial_rotary_factor"' # all at once
refused llama-v5 's/"rope_type": "default"/"rope_type": "yarn"/' '"rope_parameters" is' 'only the types "llama3" and "default"'
refused llama-2 's/"rope_scaling": null/"rope_scaling": {"type": "linear", "factor": 2.0}/' '"rope_scaling" is' 'set it to null'
refused Llama-3.2-1B 's/"low_freq_factor":1.0,//' '"rope_scaling" is' 'llama3 needs factor, low_freq_factor'
refused llama-v5 's/"num_key_value_heads": 2/"num_key_value_heads": 4/' '"num_key_value_heads" is 4: it does not divide'
refused llama-v5 's/"head_dim": 32/"head_dim": 33/' '"head_dim" is 33' 'must be even'
refused llama-2 's/"num_attention_heads": 32/"num_attention_heads": 33/' '"num_attention_heads" is 33: it does not divide'
refused llama-v5 's/"vocab_size": 1000,//' '"vocab_size" is missing'
refused llama-v5 's/"vocab_size": 1000,/"vocab_size": null,/' '"vocab_size" is null; is this'
refused gpt-exact 's/"n_head": 4, //' '"n_head" is absent, so its default holds: it does not divide'
refused llama-v5 's/"hidden_size": 96/"hidden_size": 9223372036854775807/' '"hidden_size" is 9223372036854775807: it must be'
refused llama-v5 's/"hidden_size": 96/"hidden_size": "wide"/' '"hidden_size" is "wide": it must be'
refused llama-v5 's/"dtype": "float32"/"dtype": "float8_e4m3fn"/' '"dtype" is "float8_e4m3fn"'
refused gpt-exact "$(with '"scale_attn_by_inverse_layer_idx": true')" '"scale_attn_by_inverse_layer_idx" is true'
refused gpt-exact "$(with '"scale_attn_weights": false')" '"scale_attn_weights" is false'
refused gpt-exact "$(with '"add_cross_attention": true')" '"add_cross_attention" is true'
refused gpt-exact "$(with '"tie_word_embeddings": false')" '"tie_word_embeddings" is false'
refused gpt-exact 's/"gelu"/"relu"/' '"activation_function" is "relu"' 'models/families/gpt2.fsdp'
refused gpt-exact 's/"gpt2"/"mamba"/' '"model_type" is "mamba": this is not known' \
  'GPT2LMHeadModel (gpt2), LlamaForCausalLM (llama), MistralForCausalLM (mistral), MinistralForCausalLM (ministral), Qwen2ForCausalLM (qwen2), Qwen3ForCausalLM (qwen3), Phi3ForCausalLM (phi3), Olmo2ForCausalLM (olmo2), GraniteForCausalLM (granite), StableLmForCausalLM (stablelm) and PhiForCausalLM (phi) are'
for class in GlmForCausalLM Glm4ForCausalLM; do
  refused phi-2 "s/PhiForCausalLM/$class/" "\"architectures\" is [\"$class\"]: its rotary positions turn neighbouring dims" 'choose another model'
done
refused gpt-exact 's/"gpt2"/"glm4"/' '"model_type" is "glm4": its rotary positions turn neighbouring dims'
refused phi-2 's/PhiForCausalLM/GPTNeoXForCausalLM/' 'GPTNeoXForCausalLM"]: its weights keep the queries, keys and values of a head side by side'
refused llama-v5 's/LlamaForCausalLM/LlamaForSequenceClassification/' '"architectures" is ["LlamaForSequenceClassification"]'
refused gpt-exact 's/"model_type": "gpt2",//' '"model_type" is missing'
refused gpt-exact 's/"n_head": 4/"n_head": 4, "n_head": 4/' 'config.json:' 'duplicate object key'
refused gpt-exact 's/.*/[/' 'config.json:'
expect 1 import nowhere
said err 'cannot read nowhere: No such file'
expect 1 import "$configs/gpt2" -o no/such/folder/x.fsdp
said err 'cannot write'
expect 64 import

# --- weights: exported from a trained model, imported by name and shape, the same losses as the file they were trained by.
# There the llama's loss is taken 24 rows at a time, which rounds its sum otherwise.
round_trip() { # FILE TOLERANCE CONFIG
  local name file=$1
  name=$(basename "$file" .fsdp)
  train "$name" "$file" --ranks 2 --steps 3
  expect 0 export "$file" "$name.hf" --to safetensors --weights "$name.weights" --max-file 20KB
  printf '%s' "$3" >"$name.hf/config.json"
  expect 0 import "$name.hf" -o imported.fsdp
  expect 0 export imported.fsdp "$name.again" --to safetensors --weights "$name.weights" # which names no cluster, nor needs one
  { sed '/^train/,$d' imported.fsdp && sed -n '/^train/,$p' "$file"; } >"$name.imported.fsdp"
  train "$name.ours" "$file" --ranks 2 --init "$name.weights"
  train "$name.theirs" "$name.imported.fsdp" --ranks 2 --init "$name.hf"
  "$compare" metrics "$name.theirs.jsonl" "$name.ours.jsonl" "$2"
}
round_trip "$fixtures/gpt-tiny.fsdp" 0 '{"model_type": "gpt2", "n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 16, "vocab_size": 67}'
round_trip "$fixtures/llama-tiny.fsdp" 1e-6 '{"model_type": "llama", "hidden_size": 32, "intermediate_size": 72, "num_attention_heads": 4,
  "num_key_value_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "vocab_size": 67}'
sed -E 's/linear\(x, [^)]*\) as (q|k)_proj/rmsnorm(&, heads = \1_heads) as \1_norm/; s/q_heads/heads/; s/k_heads/kv_heads/' \
  "$fixtures/llama-tiny.fsdp" >qwen3-tiny.fsdp
round_trip qwen3-tiny.fsdp 1e-6 '{"model_type": "qwen3", "hidden_size": 32, "intermediate_size": 72, "num_attention_heads": 4, "head_dim": 8,
  "num_key_value_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "vocab_size": 67}'

# Within another module, too, GPT-2's matrices are stored (in, out).
{
  printf 'use "%s/models/families/gpt2.fsdp"\nmodel within {\n  input tokens : int[batch, 16]\n  input targets : int[batch, 16]\n' "$root"
  printf '  loss = gpt2(tokens, targets, vocab = 67, ctx = 16, d = 24, heads = 3, layers = 2) as transformer\n}\n'
  sed -n '/^train/,$p' "$fixtures/gpt-tiny.fsdp"
} >within.fsdp
train within within.fsdp --ranks 1 --steps 1
expect 0 export within.fsdp within.hf --to safetensors --weights within.weights
grep -qaE '"transformer.h.1.attn.c_attn.weight": *\{[^}]*"shape": *\[24, ?72\]' within.hf/model.safetensors || fail 'c_attn of a module is not stored (in, out)'

# The example of --help does what it says, with weights and tokens that are called so.
cp -r gpt-tiny.hf gpt2
cp "$fixtures/tokens.bin" text.bin
line=$("$fsdpc" import --help | sed -n 's/^  \(fsdpc import .* && .*\)/\1/p')
mkdir -p bin && ln -s "$fsdpc" bin/fsdpc
PATH=$PWD/bin:$PATH bash -c "$line --steps 2 --threads 1" >out 2>err || { cat err >&2 && fail "an example: $line"; }
said out '2 steps in '
