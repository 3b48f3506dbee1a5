# Owns: columns of devices and links -> a cluster file, and GB/s between nodes.

BEGIN {
  infiniband["E"] = 100; infiniband["H"] = 200; infiniband["N"] = 400; infiniband["X"] = 800 # Gb/s of four lanes
  # Devices, the first that matches: more than so many GiB, and the cluster file.
  boards = split("H800 0 hgx-h800;H100 90 h100-96-500w;H100 0 dgx-h100;(^|[^G])H200 0 dgx-h200;B200 0 hgx-b200;A800 60 hgx-a800;A[18]00 59 dgx-a100-80;" \
    "A[18]00 0 dgx-a100-40;V100 19 v100-box;V100 0 aws-p3;4090 0 workstation-pcie;PRO.?6000 0 workstation-pro6000", board, ";")
  # What the large clouds' machines hold.
  machines = split("^P5[.]=H100 80G;^P5E?N?[.]=H200;^P4DE[.]=A100 80G;^A2-.*ULTRA=A100 80G;^P4D[.]|^A2-=A100 40G;^P3DN[.]=V100 32G;^P3[.]=V100 16G;" \
    "^A3-.*ULTRA=H200;^A3-=H100 80G", machine, ";")
}

# Of "80", "80GB", "HBM3 80" and "81920 MiB".
function gib(text) {
  sub(/^[^0-9]*/, "", text)
  return text + 0 > 1000 ? text / 1024 : text + 0
}

# A cloud's machine by its board.
function board_of(gpu,    i, pair) {
  for (i = 1; i <= machines; i++)
    if (split(machine[i], pair, "=") && gpu ~ pair[1]) return pair[2]
  return gpu
}

# The PyTorch team measures on H100 of 96 GB held to 500 W where it says which board; taken so where it does not.
function cluster_of(gpu, memory, source,    i, known) {
  gpu = board_of(toupper(gpu))
  if (memory == "" && match(gpu, /[0-9]+ ?G|[- (](16|32|40|80|94|96)([^0-9]|$)/)) memory = substr(gpu, RSTART) # "A100-SXM4-40GB", "A100-40"
  memory = memory ~ /[0-9]/ ? gib(memory) : 0
  if (!memory) memory = gpu !~ /H100/ ? 1000 : source ~ /github.com\/pytorch\// ? 96 : 80
  for (i = 1; i <= boards; i++) {
    split(board[i], known, " ")
    if (gpu ~ known[1] && memory + 0 > known[2] + 0) return known[3]
  }
  return ""
}

# "400G", "400GbE", "4x HDR" and "NDR400" name a link's Gb/s.
function spelt_rate(text,    before, rest) {
  if (text !~ /[0-9] *[GT]/ && text ~ /[0-9]/ && match(text, /[EHNX]DR/)) {
    before = substr(text, 1, RSTART - 1); rest = substr(text, RSTART + 3); sub(/^[ -]*[0-9]+/, "", rest)
    return before infiniband[substr(text, RSTART, 1)] " Gb/s" rest
  }
  while (match(text, /[0-9] ?G(bE|E|[^A-Za-z]|$)/)) text = substr(text, 1, RSTART) " Gb/s " substr(text, RSTART + RLENGTH)
  return text
}

# GB/s a node from "1600 Gb/s per node", "400 Gb/s per GPU", "8x 400 Gb/s", "HDR 200 Gb/s x8", "3.2 Tbps" or "200 GB/s"; 0: nothing said.
function network_of(text,    rate, bytes, count) {
  gsub(/EFA ?v[0-9]/, "", text); gsub(/×/, "x", text); sub(/[Gg]bps/, "Gb/s", text)
  while (match(text, /[0-9],[0-9][0-9][0-9]([^0-9]|$)/)) text = substr(text, 1, RSTART) substr(text, RSTART + 2)
  text = spelt_rate(text)
  if (!match(text, /[0-9.]+ *[GT](b|bit|B)/)) return 0
  rate = substr(text, RSTART, RLENGTH)
  bytes = rate ~ /B$/ ? 1 : 8
  count = match(substr(text, 1, RSTART - 1), /[0-9]+ *x/) ? substr(text, RSTART, RLENGTH) + 0 : 0
  if (match(text, /[a-z] *x *[0-9]+/)) { count = substr(text, RSTART, RLENGTH); sub(/^[^0-9]*/, "", count) }
  rate = (rate + 0) * (rate ~ /T/ ? 1000 : 1) / bytes
  if (count) return rate * count
  if (text ~ /per (GPU|device|NIC|adapter|link)|\/ ?GPU/) return rate * per_node
  return rate
}
