# Owns: families of models: what figures a row leaves open follow from its family and its published number of parameters.

BEGIN {
  # Numbers of tokens where the cell is empty, the first family that matches.
  vocabularies = split("character=256;llama[- ]?v?3=128256;llama|mistral|vicuna=32000;pythia|neox=50432;gemma=256000;qwen=151936;falcon=65024;" \
    "mpt|mosaicgpt=50368;gpt=50257;vocab not stated=256", vocabulary, ";")
}

function gpt_names() { return "mpt|mosaicgpt|gpt|pythia|bloom|falcon|(^|[^a-z])opt([^a-z]|$)" }

function llama_names() { return "llama|mistral|qwen|internlm|smollm|olmo|granite|kempner|lingua|vicuna|gemma|(^|[^a-z])yi([^a-z]|$)" }

# Families that normalise queries and keys before their positions.
function norms_heads(family) { return family ~ /qwen[- ]?3([^0-9.]|$)|olmo[- ]?2|gemma[- ]?3/ }

# Families whose products for queries, keys and values add a bias: Qwen before its third.
function adds_biases(family) { return family ~ /qwen/ && family !~ /qwen[- ]?3/ }

function vocabulary_of(family,    i, pair) {
  for (i = 1; i <= vocabularies; i++)
    if (split(vocabulary[i], pair, "=") && family ~ pair[1]) return pair[2]
  return 0
}

# A number of parameters: 6738415616, "6.74e9", "~1.4B", "760M"; 0 where none is said.
function parameters_of(text) {
  text = toupper(text); sub(/[(].*/, "", text); gsub(/[~≈, \x27]/, "", text)
  if (text !~ /[0-9][BMK]/ && text + 0 < 1e5) return 0
  return text * (text ~ /[0-9]B/ ? 1e9 : text ~ /[0-9]M/ ? 1e6 : text ~ /[0-9]K/ ? 1e3 : 1)
}

# Parameters of a model whose head shares the embedding's weight.
function parameters(gpt, biased,    block) {
  block = 2 * d * head * heads + 2 * d * head * kv + (gpt ? 2 * d * ffn + 7 * d + 2 * head * kv + ffn : 3 * d * ffn + 2 * d)
  if (biased) block += head * heads + 2 * head * kv
  return layers * block + v * d + (gpt ? s * d + 2 * d : d)
}

function distance(published, biased,    base) {
  base = parameters(0, biased)
  return min(abs(base - published), abs(base + v * d - published)) / published
}

# How far the parameters are from the published number, with and without a shared head.
function nearest(published, gpt, biased,    base) {
  head = d / heads; base = parameters(gpt, biased)
  return min(abs(base - published), abs(base + v * d - published)) / published
}

# Whether sharing the head with the embedding brings the parameters nearer to the published number.
function is_tied(published, gpt, biased,    base) {
  if (!published) return gpt || words("model_family") ~ /llama.?3[.]2.*(1|3)b|gemma|smollm|qwen.*[^0-9](0[.][56]|1[.][578]|3|4)b/
  base = parameters(gpt, biased)
  return abs(base - published) <= abs(base + v * d - published)
}

# The width of a family's heads where it is not d_model / heads, or 0. Gemma's 27B have heads of 128.
function known_head(family) {
  if (family ~ /qwen[- ]?3([^0-9.]|$)|mistral[- ]?nemo/) return 128
  return family ~ /gemma/ ? (family ~ /27 ?b/ ? 128 : 256) : 0
}

# Numbers in a head: the family's, else d_model / heads, unless the published parameters are those of heads of another width.
function head_of(published, biased,    usual, i) {
  head = known_head(words("model_family"))
  if (head && (!published || distance(published, biased) < 0.05)) return head
  head = usual = d / heads
  if (!published || distance(published, biased) < 0.05) return usual
  split("64 96 128 192 256", widths, " ")
  for (i = 1; i in widths; i++) {
    head = widths[i] + 0
    if (distance(published, biased) < 0.01) return head
  }
  return usual
}

# Where the cell is empty: what makes the published parameters, else the family's.
function kv_heads_of(family, published,    known, i, least, biased) {
  if (family ~ gpt_names()) return heads
  biased = adds_biases(family); known = heads
  if (family ~ /llama[- ]?v?3|mistral|qwen[- ]?3|llama.*70 ?b/) known = heads % 8 ? heads : 8
  head = known_head(family) ? known_head(family) : d / heads
  if (family ~ /qwen[- ]?2/) known = d <= 2048 ? 2 : d <= 3584 ? 4 : 8
  kv = known; least = published ? distance(published, biased) : 0
  for (i = heads; published && least > 0.005 && i >= 1; i--) {
    if (heads % (kv = i)) continue
    if (distance(published, biased) < least) { least = distance(published, biased); known = i }
  }
  return known
}
