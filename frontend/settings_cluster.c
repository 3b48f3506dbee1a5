/* Owns: cluster blocks and cluster files -> Cluster.
 *
 * A block may begin with `use "file"`, which reads another file's cluster first; what the block then states
 * overrides. */
#include "frontend/settings.h"

static void read_cluster(Sema *sema, const Stmt *block, uint32_t depth);

enum { CLUSTER_MAX_USES = 16, CLUSTER_MAX_DEVICES = 1 << 20 };

#define DEVICE(member) offsetof(Device, member)
#define LINK(member)   offsetof(Link, member)
#define FIELD(member)  offsetof(Cluster, member)

/* peak bf16 989TFLOPS f32 67TFLOPS */
static bool read_peak(Reader *reader, const Key *key) {
  Device *device = reader->target;
  bool any = false;
  while (!next_is_key(reader)) {
    const Item *item = next_item(reader);
    int dtype = item->kind == ITEM_WORD ? dtype_find(item->text) : -1;
    if (dtype < 0) {
      if (any) return true; /* not ours: reported as an unknown key */
      return key_error(reader, key, item->span, "\"peak\" needs a type of numbers such as bf16");
    }
    reader->at++;
    Quantity quantity;
    if (!read_number(reader, key, QUANTITY_FLOPS, 1, 0, &quantity)) return false;
    device->peak[dtype] = quantity.value;
    any = true;
  }
  return any || key_error(reader, key, reader->key_span, "\"peak\" needs a type of numbers and its speed");
}

static const Key device_keys[] = {
    {"name", KEY_STRING, DEVICE(name), .usage = "name \"...\""},
    {"memory", KEY_BYTES, DEVICE(memory_bytes), .usage = "memory 79GiB"},
    {"bandwidth", KEY_RATE, DEVICE(bandwidth), .least = 1, .usage = "bandwidth 3.35TB/s"},
    {"bandwidth_share", KEY_REAL, DEVICE(bandwidth_share), .least = 1e-3, .most = 1,
     .usage = "bandwidth_share 0.75"},
    {"peak", KEY_CUSTOM, .read = read_peak, .repeats = true, .usage = "peak bf16 989TFLOPS f32 67TFLOPS"},
    {"gemm_share", KEY_REAL, DEVICE(gemm_share), .least = 1e-3, .most = 1, .usage = "gemm_share 0.7"},
    {"attention_share", KEY_REAL, DEVICE(attention_share), .least = 1e-3, .most = 1,
     .usage = "attention_share 0.4"},
    {"attention_backward", KEY_REAL, DEVICE(attention_backward), .least = 1e-3, .most = 1,
     .usage = "attention_backward 0.7"},
    {"tile_units", KEY_REAL, DEVICE(tile_units), .least = 1, .usage = "tile_units 132"},
    {"launch", KEY_NS, DEVICE(launch_ns), .usage = "launch 2us"},
    {"host_link", KEY_RATE, DEVICE(host_link), .usage = "host_link 55GB/s"},
    {"shared_queue", KEY_YES_NO, DEVICE(shared_queue), .usage = "shared_queue yes|no"},
};

static const Key network_keys[] = {
    {"bandwidth", KEY_RATE, LINK(bandwidth), .least = 1, .usage = "bandwidth 400GB/s"},
    {"latency", KEY_NS, LINK(latency_ns), .usage = "latency 5us"},
    {"efficiency", KEY_REAL, LINK(efficiency), .least = 1e-3, .most = 1, .usage = "efficiency 0.8"},
};

/* The node's keys are a link's and the number of devices, kept beside it in Cluster. */
static const Key node_keys[] = {
    {"devices", KEY_COUNT, FIELD(node_devices), .least = 1, .most = CLUSTER_MAX_DEVICES,
     .usage = "devices 8"},
    {"bandwidth", KEY_RATE, FIELD(node) + LINK(bandwidth), .least = 1, .usage = "bandwidth 340GB/s"},
    {"latency", KEY_NS, FIELD(node) + LINK(latency_ns), .usage = "latency 40us"},
    {"efficiency", KEY_REAL, FIELD(node) + LINK(efficiency), .least = 1e-3, .most = 1,
     .usage = "efficiency 0.9"},
};

static bool read_device(Reader *reader, const Key *key) {
  static const char *const kinds[] = {"cpu", "gpu", NULL};
  static const DeviceKind values[] = {DEVICE_CPU, DEVICE_GPU};
  Cluster *cluster = reader->target;
  const Item *item = next_item(reader);
  int32_t kind;
  if (item && (item->kind == ITEM_WORD ||
               cluster->device.kind == DEVICE_NONE)) { /* an override may leave the kind out */
    if (!read_word(reader, key, kinds, &kind)) return false;
    cluster->device.kind = values[kind];
  }
  item = read_block_item(reader, key);
  if (item) READ_BLOCK(reader->sema, "device", device_keys, item->items, &cluster->device);
  return item != NULL;
}

static bool read_node(Reader *reader, const Key *key) {
  const Item *item = read_block_item(reader, key);
  if (item) READ_BLOCK(reader->sema, "node", node_keys, item->items, reader->target);
  return item != NULL;
}

static bool read_network(Reader *reader, const Key *key) {
  const Item *item = read_block_item(reader, key);
  Cluster *cluster = reader->target;
  if (item) READ_BLOCK(reader->sema, "network", network_keys, item->items, &cluster->network);
  return item != NULL;
}

/* Handled before the other keys. */
static bool skip_use(Reader *reader, const Key *key) {
  (void)key;
  if (reader->at > 1)
    return key_error(reader, key, reader->key_span,
                     "\"use\" must come first in its block, since what follows overrides it");
  reader->at++;
  return true;
}

static const Key cluster_keys[] = {
    {"use", KEY_CUSTOM, .read = skip_use, .usage = "use \"clusters/dgx-h100.fsdp\""},
    {"device", KEY_CUSTOM, .read = read_device, .usage = "device cpu|gpu { ... }"},
    {"node", KEY_CUSTOM, .read = read_node, .usage = "node { devices 8 bandwidth 340GB/s latency 40us }"},
    {"network", KEY_CUSTOM, .read = read_network, .usage = "network { bandwidth 400GB/s latency 5us }"},
    {"nodes", KEY_COUNT, FIELD(nodes), .least = 1, .most = CLUSTER_MAX_DEVICES, .usage = "nodes 4"},
    {"contention", KEY_REAL, FIELD(contention), .most = 1, .usage = "contention 0.4"},
    {"price", KEY_PRICE, FIELD(price_per_hour), .usage = "price 2.5USD/h"},
};

static void read_file(Sema *sema, const char *path, Span at, uint32_t depth) {
  int32_t index = files_open(&sema->files, path, at);
  if (index < 0) return;
  const Ast *ast = sema->files.list.data[index].ast;
  for (uint32_t i = 0; i < ast->statements->count; i++) {
    const Stmt *stmt = ast->statements->data[i];
    if (stmt->kind != STMT_BLOCK || strcmp(stmt->type.text, "cluster")) continue;
    read_cluster(sema, stmt, depth + 1);
    return;
  }
  sema_error(sema, at, "\"%s\" states no cluster", path);
}

static void read_cluster(Sema *sema, const Stmt *block, uint32_t depth) {
  const ItemList *items = block->items;
  bool uses = items->count > 0 && items->data[0].kind == ITEM_WORD && !strcmp(items->data[0].text, "use");
  if (uses && (items->count < 2 || items->data[1].kind != ITEM_STRING)) {
    sema_error(sema, items->data[0].span, "\"use\" needs a file name in quotes");
    return;
  }
  if (uses && depth > CLUSTER_MAX_USES) {
    sema_error(sema, items->data[1].span, "cluster files use one another in a circle");
    return;
  }
  if (uses) read_file(sema, items->data[1].text, items->data[1].span, depth);
  if (block->name.text) sema->graph->cluster.name = block->name.text;
  READ_BLOCK(sema, "cluster", cluster_keys, items, &sema->graph->cluster);
}

static bool need(Sema *sema, Span span, bool stated, const char *what, const char *usage) {
  if (stated) return true;
  Diag *diag = sema_error(sema, span, "the cluster does not state %s", what);
  diag_help(diag, "add `%s`", usage);
  return false;
}

/* What a plan cannot be made without; the rest has defaults, all of them assumptions of the cost model. */
static void check_cluster(Sema *sema, Span span) {
  Cluster *cluster = &sema->graph->cluster;
  Device *device = &cluster->device;
  if (!need(sema, span, device->kind != DEVICE_NONE, "its device", "device gpu { ... }") ||
      !need(sema, span, device->memory_bytes > 0, "the memory of a device", "memory 79GiB") ||
      !need(sema, span, device->bandwidth > 0, "the bandwidth of a device", "bandwidth 3.35TB/s") ||
      !need(sema, span, device->peak[DTYPE_F32] > 0, "the peak of a device for f32", "peak f32 67TFLOPS") ||
      !need(sema, span, cluster->node_devices == 1 || cluster->node.bandwidth > 0,
            "the bandwidth between devices of a node", "node { bandwidth 340GB/s }") ||
      !need(sema, span, cluster->nodes == 1 || cluster->network.bandwidth > 0,
            "the network between its nodes", "network { bandwidth 400GB/s latency 5us }"))
    return;
  if (!device->name) device->name = cluster->name;
  if (device->bandwidth_share == 0) device->bandwidth_share = 0.755;
  if (device->gemm_share == 0) device->gemm_share = 0.7;
  if (device->attention_share == 0) device->attention_share = 0.37;
  if (device->attention_backward == 0) device->attention_backward = 0.68;
  if (device->tile_units == 0) device->tile_units = 1;
  for (int i = 0; i < DTYPE_COUNT; i++) /* types without an own unit run at the speed of f32 */
    if (device->peak[i] == 0) device->peak[i] = device->peak[DTYPE_F32];
}

void settings_cluster(Sema *sema, const Stmt *block) {
  uint32_t errors = sema->sink->errors;
  read_cluster(sema, block, 0);
  if (sema->sink->errors == errors) check_cluster(sema, block->span);
}

/* --cluster takes a path, or the bare name of a file in the models folder's clusters/. */
void settings_cluster_file(Sema *sema, const char *path) {
  uint32_t errors = sema->sink->errors;
  bool bare = !strchr(path, '/') && !strchr(path, '.');
  read_file(sema, bare ? arena_printf(sema->arena, "clusters/%s.fsdp", path) : path, SPAN_NONE, 0);
  if (sema->sink->errors == errors) check_cluster(sema, SPAN_NONE);
}
