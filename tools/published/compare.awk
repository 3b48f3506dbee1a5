# Owns: the manifest of rows.awk and the predictions beside it (folder `out`, id.json) -> one line a metric, then median and worst a group.

function figure(id, name,    line, found) {
  found = ""
  while ((getline line < (out "/" id ".json")) > 0)
    if (found == "" && index(line, "\"" name "\":")) { sub(/.*: */, "", line); sub(/,.*/, "", line); found = line }
  close(out "/" id ".json")
  return found
}

function abs(x) { return x < 0 ? -x : x }

function add(key, error, id) {
  if (!(key in count) && key !~ /^(all|eager on)/) keys[++groups] = key
  value[key, ++count[key]] = abs(error); signed[key] += error
  if (abs(error) > abs(worst[key])) { worst[key] = error; where[key] = id }
}

function note(kind, id, published, predicted,    error, mark) {
  error = 100 * (predicted / published - 1)
  mark = reason == "-" ? "" : "  suspect: " reason
  if (kind != "speed") { published /= 2 ^ 30; predicted /= 2 ^ 30 }
  printf "%-34s %-10s %12.5g %12.5g %+7.1f %%%s\n", id, kind, published, predicted, error, mark
  if (reason != "-") return
  add(group SUBSEP kind, error, id)
  add((single && kind == "speed" ? "eager on one GPU" : "all") SUBSEP kind, error, id)
}

# A published figure: "5,762", "~45", "6.2k tok/s", the middle of "6100-6200"; 0 where none is.
function value_of(text,    ends) {
  text = tolower(text); gsub(/[~, ]/, "", text)
  if (text ~ /[0-9]-[0-9]/ && split(text, ends, "-") == 2) return (ends[1] + ends[2]) / 2
  return text * (text ~ /^[0-9.]+k/ ? 1000 : text ~ /^[0-9.]+m([^a-z]|$)/ ? 1e6 : 1)
}

# Bytes of a peak's unit, as its own column has it or its name; those without one are GiB, and percents are no bytes.
function unit(name, said) {
  said = said ~ /[kmg]i?b/ ? said : name " " said
  if (said ~ /%|percent|fraction/) return 0
  return said ~ /gib/ ? 2 ^ 30 : said ~ /gb/ ? 1e9 : said ~ /mib/ ? 2 ^ 20 : said ~ /mb/ ? 1e6 : said ~ /bytes|(^| )b$/ ? 1 : 2 ^ 30
}

# "active", "reserved" or "" of a metric of memory. What a device or driver reports is what was reserved.
function memory_of(name) {
  if (name ~ /steady|static|host|cpu|model|tflop/) return ""
  if (name ~ /active|alloc/) return "active"
  return name ~ /reserv|peak|max_mem|memory|(^|[ _])mem([ _]|$)|vram/ ? "reserved" : ""
}

# What the driver counts beside what PyTorch reserved: the context and its kernels, "1-2 GB" by the Ultra-Scale Playbook of nanotron.
function beside(kind, name) { return kind == "reserved" && name ~ /nvidia|(^|_)smi([^a-z]|$)|driver/ ? 2 ^ 30 : 0 }

# Tokens a second and rank that a metric of speed says, by its name or its unit; 0 where it is none.
function tokens_per_rank(name, said, published,    all, of_rank) {
  all = name " " said
  gsub(/ *\/ */, "/", all)
  if (all ~ /flop|mfu|hfu|epoch|day|hour|per_node|\/ ?node/) return 0
  of_rank = all ~ /per[_ ](gpu|dev(ice)?|rank|chip)|\/(gpu|dev(ice)?|rank|chip|p)([^a-z]|$)|(^|[^a-z])(wps|tps|tgs)([^a-z]|$)/ && all !~ /global|total/
  if (name ~ /time|latency/ || all ~ /(^|[^a-z])(s|ms|secs?|seconds?)(_per_|\/| per )(step|it)/) return tokens / devices / published * (all ~ /(^|[^a-z])(ms|milliseconds)([^a-z]|$)/ ? 1000 : 1)
  if (all ~ /steps?(_per_|\/| per )s|it(er(ation)?s?|s)?(_per_|\/)s/) return published * tokens / devices
  if (all ~ /tok[a-z]*(_per_|_|\/| per )((gpu|dev(ice)?|rank|p)([_\/]|_per_| per ))?s|(^|[^a-z])(wps|tps|tgs)([^a-z]|$)/) return of_rank ? published : published / devices
  return all ~ /sampl|seqs?(_per_|\/)|sequences/ ? published * tokens / samples / (of_rank ? 1 : devices) : 0
}

# A unit that stands behind the figure: "3499 ms", "62.4GiB(45%)", "9.3k tok/s/GPU".
function trailing(text) {
  sub(/[(].*/, "", text); sub(/^[~0-9.,e+ -]*/, "", text); sub(/^[km] /, "", text)
  return text
}

function ignore(id, metric, why) { printf "ignored: %s: %s: %s\n", id, metric, why > "/dev/stderr" }

function median(key,    i, j, n, a, x) {
  n = count[key]
  for (i = 1; i <= n; i++) a[i] = value[key, i]
  for (i = 2; i <= n; i++) { x = a[i]; for (j = i - 1; j > 0 && a[j] > x; j--) a[j + 1] = a[j]; a[j + 1] = x }
  return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
}

function fit(id, kind, predicted_fits, did_fit) {
  if (predicted_fits != did_fit) {
    printf "%-34s %-10s ran: %s, predicted to fit: %s%s\n", id, kind, did_fit ? "yes" : "no", predicted_fits ? "yes" : "no", reason == "-" ? "" : "  suspect: " reason
    if (reason == "-") misfits++; else suspect_misfits++
  }
  fits++
}

BEGIN { FS = "\t"; printf "%-34s %-10s %12s %12s %9s\n", "run", "metric", "published", "predicted", "error" }
{
  id = $1; group = $2; reason = $3; tokens = $5; devices = $6; samples = $7; single = $8; did_fit = 1; timed = 0
  speed = figure(id, "tokens_per_s_per_rank")
  if (speed == "") { printf "%-34s no prediction\n", id; failed++; next }
  n = split($4, metric, ";"); evident = 0
  for (i = 1; i <= n; i++) {
    split(metric[i], pair, "="); name = tolower(pair[1]); said = tolower(pair[3]); text = tolower(pair[2])
    if (name ~ /^(oom|out_of_memory|fits?|ran)$/ || text ~ /oom|out of memory/) {
      denied = text ~ /^(0|no|false)/; evident = 1
      did_fit = name ~ /^(fits?|ran)$/ ? !denied && text !~ /oom|out of memory/ : denied
      continue
    }
    if (said == "" && match(text, /[0-9] *[kmgt]?i?b?[a-z\/ ]+([(]|$)/)) said = trailing(text)
    published = value_of(text)
    if (said ~ /^(k|thousand)[- ]?(tok|wps|tps)/) published *= 1000
    sub(/[(][0-9.]+ ?%[)]/, "", text)
    if (published <= 0 || text ~ /%/) { ignore(id, name, "\"" pair[2] "\" is no figure"); continue }
    evident = 1
    kind = memory_of(name)
    rate = kind == "" ? tokens_per_rank(name, said, published) : 0
    if (kind != "" && unit(name, said)) note(kind, id, published * unit(name, said), figure(id, kind "_bytes") + beside(kind, name))
    else if (rate > 0) { if (!timed) note("speed", id, rate, speed); timed = 1 }
    else if (name !~ /mfu|hfu|flop|steady/) ignore(id, name, "neither a speed nor a peak" (said == "" ? "" : " in " said))
  }
  if (evident) fit(id, "fit", figure(id, "fits") == "true", did_fit)
}
END {
  printf "\n%-20s %-10s %5s %9s %9s %9s  %s\n", "group", "metric", "rows", "median", "mean", "worst", "at"
  keys[++groups] = "all" SUBSEP "speed"; keys[++groups] = "eager on one GPU" SUBSEP "speed"; keys[++groups] = "all" SUBSEP "active"; keys[++groups] = "all" SUBSEP "reserved"
  for (g = 1; g <= groups; g++) {
    split(keys[g], k, SUBSEP)
    if (count[keys[g]]) printf "%-20s %-10s %5d %7.1f %% %+7.1f %% %+7.1f %%  %s\n", k[1], k[2], count[keys[g]], median(keys[g]), signed[keys[g]] / count[keys[g]], worst[keys[g]], where[keys[g]]
  }
  printf "fit: %d runs, %d predicted wrongly (%d more among suspect rows); %d without a prediction\n", fits, misfits, suspect_misfits, failed
}
