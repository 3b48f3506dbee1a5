# Owns: a line of the CSV -> its cells, and what a cell says whatever column it stands in: numbers, denials, ordinals. Cells are read for their
# meaning, whatever their case.

# Splits a CSV line with quoted fields into f[1..]; returns their number.
function csv(line, f,    n, c, i, quoted, field) {
  n = 0; field = ""; quoted = 0
  for (i = 1; i <= length(line); i++) {
    c = substr(line, i, 1)
    if (c == "\"") {
      if (quoted && substr(line, i + 1, 1) == "\"") { field = field "\""; i++ } else quoted = !quoted
    } else if (c == "," && !quoted) { f[++n] = field; field = "" } else field = field c
  }
  f[++n] = field
  return n
}

function get(name) { return name in column ? f[column[name]] : "" }

# A cell in lower case, without blanks around it; crosses and ticks as letters.
function words(name,    text) {
  text = tolower(get(name))
  gsub(/×/, "x", text); gsub(/✗|✘|❌/, "no", text); gsub(/✓|✔|✅/, "yes", text)
  gsub(/^ +| +$/, "", text)
  return text
}

# A cell's number: 4096 of "4,096", "4 096", "4k", "4096 (derived)", "seq_len=4096" and "4096 tokens"; the text itself where it is none.
function number(name,    text) {
  text = words(name)
  gsub(/,|~|≈|\x27|’/, "", text); sub(/\(s\)/, "s", text); sub(/ *\(.*$/, "", text)
  while (match(text, /[0-9] [0-9][0-9][0-9]([^0-9]|$)/)) text = substr(text, 1, RSTART) substr(text, RSTART + 2)
  if (text ~ /^([a-z][a-z_. -]*[=: ] *|m?bs)[0-9.]+/) sub(/^[^0-9]*/, "", text)
  if (name ~ /^(gpus|grad_accum)$/) sub(/^x */, "", text)
  if (name == "grad_accum") sub(/ *x$/, "", text)
  if (name == "gpus") sub(/[ x]+(nvidia )?([abhv][0-9]+[a-z]*([ -].*)?|rtx.*|devices?|ranks?|accelerators?|cards?)$/, "", text) # "8x H100"
  if (name == "micro_batch_per_gpu") sub(/ *[x*] *[0-9]+k?( *tok[a-z]*)?$/, "", text)
  if (name == "global_batch_tokens" && text ~ /^[0-9]+ *[x*] *[0-9]+$/) return text * substr(text, match(text, /[0-9]+$/)) # "64 x 2048"
  sub(/[ -]*(tok(en)?s?|gpus?|heads?|layers?|blocks?|seqs?|sequences|samples|((micro|accumulation)[- ]?)?(steps?|batch(es)?))?([- ]*(per |\/ ?|a )(gpu|device|rank|node|sample|seq(uence)?))?$/, "", text)
  if (name == "gpus" && text ~ /^[0-9]+ *(nodes?)? *[x*] *[0-9]+$/) return text * substr(text, match(text, /[0-9]+$/)) # "4x8"
  if (name == "gpus") sub(/ *x$/, "", text)
  if (text ~ /^[0-9.]+ ?ki?$/) return text * 1024
  if (name == "global_batch_tokens" && text ~ /^[0-9.]+ ?m(i|illion)?$/) return text * 1048576
  return text ~ /^[0-9.]+(e[0-9]+)?$/ ? text + 0 : text
}

# The number in a text's first part that a pattern matches; 0 where none does.
function found(text, pattern) {
  if (!match(text, pattern)) return 0
  text = substr(text, RSTART, RLENGTH); sub(/^[^0-9]*/, "", text)
  return text + 0
}

# The number at the start of a text such as "2nd", "fourth" or "other"; 0 where none is.
function ordinal(text) {
  if (text ~ /^[0-9]/) return text + 0
  if (text ~ /^(other|second)/) return 2
  return text ~ /^third/ ? 3 : text ~ /^fourth/ ? 4 : text ~ /^eighth/ ? 8 : 0
}

# "none", "no (eager)", "off", "n/a", "w/o AC", "compile=False": a cell that says there is nothing of the kind.
function denied(text) {
  gsub(/^-+([a-z_]+[.])?/, "", text); sub(/^(ac|gc|ckpt|activation_checkpoint)[.]/, "", text) # of a command line
  sub(/^(ac|gc|((activation|gradient)[_ ])?(checkpoint(ing)?|checkpoints)|ckpt|recompute|(torch[._ ])?compile|(cpu[_ ])?offload(_[a-z]+)?|mode|enabled?)[ =:]+/, "", text)
  return text ~ /^(none|no|n|not|off|false|disabled|without|w\/?o|uncompiled|n\/a|gpu only|on gpu|0)([^a-z0-9].*)?$|^$/
}

# A text without what it denies: "no autocast", "mixed_precision: no", "without fused kernels", "AdamW (fused=False)", "unfused Adam".
function affirmed(text) {
  gsub(/(^|[^a-z])(no|not|non|without|w\/o|instead of)[- ]+((a|an|any|the|by|using|uses|yet) )*(fused|foreach|autocast|amp|tf32|mixed[-_ ]precision|liger|apex)[^;,.]*/, " ", text)
  gsub(/(^|[^a-z])unfused[^;,.]*/, " ", text)
  gsub(/(fused|foreach|autocast|amp|tf32|mixed[-_ ]?precision|liger)[a-z_]*[ =:]+(is |was )?(no|not|off|false|none|disabled|0)([^a-z0-9]|$)/, " ", text)
  return text
}

# Notes, in lower case.
function claims() { return affirmed(tolower(get("notes"))) }

# A cell that leaves open what it is asked.
function silent(text) { return text ~ /^(|-|n\/a.*|default)$|not stated|unknown|[?]/ }

function plain(text) { gsub(/[;=\t]/, " ", text); return text }

function abs(x) { return x < 0 ? -x : x }

function min(x, y) { return x < y ? x : y }
