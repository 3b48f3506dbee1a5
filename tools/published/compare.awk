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
  printf "%-34s %-10s %12.5g %12.5g %+7.1f %%%s\n", id, kind, published, predicted, error, mark
  if (reason != "-") return
  add(group SUBSEP kind, error, id)
  add((single && kind == "speed" ? "eager on one GPU" : "all") SUBSEP kind, error, id)
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
    if (name == "oom") { did_fit = published == 0; continue }
    if (name ~ /^peak_(active|allocated)_gib/) note("active", id, published, figure(id, "active_bytes") / 2 ^ 30)
    if (name ~ /^peak_allocated_gb/) note("active", id, published, figure(id, "active_bytes") / 1e9)
    if (name ~ /^peak_(reserved|mem)_gib/) note("reserved", id, published, figure(id, "reserved_bytes") / 2 ^ 30)
    if (timed || published <= 0) continue
    if (name == "tokens_per_s_per_gpu") { note("speed", id, published, speed); timed = 1 }
    if (name == "tokens_per_s_global") { note("speed", id, published, speed * devices); timed = 1 }
    if (name == "step_time_ms") { published /= 1000; name = "step_time_s" }
    if (name == "step_time_s") { note("speed", id, tokens / published / devices, speed); timed = 1 }
    if (name == "samples_per_s_global") { note("speed", id, published, speed * devices * samples / tokens); timed = 1 }
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
