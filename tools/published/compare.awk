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

# A published figure: "5,762", "~45", the middle of "6100-6200"; 0 where none is.
function value_of(text,    ends) {
  gsub(/[~, ]/, "", text)
  return split(text, ends, "-") == 2 ? (ends[1] + ends[2]) / 2 : text + 0
}

# Bytes of a peak's unit; those without one are GiB.
function unit(name) { return name ~ /_gb/ ? 1e9 : name ~ /_mib/ ? 2 ^ 20 : name ~ /_mb/ ? 1e6 : 2 ^ 30 }

# Tokens a second and rank that a metric of speed says; 0 where it is none.
function tokens_per_rank(name, published,    of_rank) {
  of_rank = name ~ /per_(gpu|device|rank)/
  if (name ~ /^(tokens_per_s|tok_s|wps|tps)/) return of_rank || name ~ /^(wps|tps)$/ ? published : published / devices
  if (name ~ /^samples_per_s/) return published * tokens / samples / (of_rank ? 1 : devices)
  if (name ~ /^(step|iter)_time_(s|ms)$/) return tokens / devices / published * (name ~ /_ms$/ ? 1000 : 1)
  return 0
}

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
  n = split($4, metric, ";")
  for (i = 1; i <= n; i++) {
    split(metric[i], pair, "="); name = pair[1]; published = pair[2]
    if (name == "oom") { did_fit = tolower(published) ~ /^(0|no|false)$/; continue }
    published = value_of(published)
    if (published <= 0) continue
    if (name ~ /^peak_(active|alloc)/) note("active", id, published * unit(name), figure(id, "active_bytes"))
    if (name ~ /^peak_(reserved|mem)/) note("reserved", id, published * unit(name), figure(id, "reserved_bytes"))
    rate = tokens_per_rank(name, published)
    if (!timed && rate > 0) { note("speed", id, rate, speed); timed = 1 }
  }
  fit(id, "fit", figure(id, "fits") == "true", did_fit)
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
