/* Owns: cluster blocks and cluster files -> Cluster.
 *
 * A block may begin with `use "file"`, which reads another file's cluster first; what the block then states
 * overrides. */
#include "frontend/settings.h"

#include <unistd.h>

/* The blocks being read, from the innermost outward. */
typedef struct Chain {
  const Stmt *block;
  const struct Chain *outer;
} Chain;

static void read_cluster(Sema *sema, const Stmt *block, const Chain *outer);

enum { CLUSTER_MAX_DEVICES = 1 << 20 };

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
    state_once(reader, arena_printf(reader->sema->arena, "peak %s", item->text), item->span);
    Quantity quantity;
    if (!read_number(reader, key, QUANTITY_FLOPS, 1, 0, &quantity)) return false;
    device->peak[dtype] = quantity.value;
    any = true;
  }
  return any || key_error(reader, key, reader->key_span, "\"peak\" needs a type of numbers and its speed");
}

/* A size that need not be whole bytes, such as 79.1GiB. */
static bool read_allocator(Reader *reader, const Key *key) {
  Quantity quantity;
  if (!read_number(reader, key, QUANTITY_BYTES, 1, 0, &quantity)) return false;
  ((Device *)reader->target)->allocator_bytes = (uint64_t)quantity.value;
  return true;
}

/* --- measured times ------------------------------------------------------------------------------------------------ */

/* { 1MiB 31us  2MiB 32us ... }; false after an error. */
static bool read_sizes(Reader *reader, const Key *key, const Item *block, TimedSizes *out) {
  Reader inner = {.sema = reader->sema, .block = key->name, .items = block->items, .key_span = reader->key_span};
  Quantity bytes, time;
  out->count = 0; /* a later statement overrides an earlier one */
  while (next_item(&inner)) {
    Span at = next_item(&inner)->span;
    if (!read_number(&inner, key, QUANTITY_BYTES, 1, 0, &bytes) || !read_number(&inner, key, QUANTITY_SECONDS, 1e-9, 0, &time))
      return false;
    if (out->count && bytes.value <= out->data[out->count - 1].bytes)
      return key_error(&inner, key, at, "the sizes of a table must grow");
    TimedSize point = {bytes.value, 1e9 * time.value};
    vec_push(reader->sema->arena, out, point);
  }
  return out->count || key_error(reader, key, block->span, "a table needs a size and its time");
}

static bool read_rate(Reader *reader, const Key *key) {
  Quantity quantity;
  if (!read_number(reader, key, QUANTITY_FLOPS, 1, 0, &quantity)) return false;
  *(double *)reader->target = quantity.value;
  return true;
}

static const Key product_keys[] = {
    {"rate", KEY_CUSTOM, .read = read_rate, .usage = "rate 190GFLOPS"}, /* both structures begin with it */
    {"m", KEY_REAL, offsetof(PassRate, m), .usage = "m 10"},
    {"n", KEY_REAL, offsetof(PassRate, n), .usage = "n 10"},
    {"k", KEY_REAL, offsetof(PassRate, k), .usage = "k 10"},
};

static const char *const attention_types[] = {"f32", "bf16", "f16", NULL};
_Static_assert(DTYPE_F32 == 0 && DTYPE_BF16 == 1 && DTYPE_F16 == 2, "words in the order of types");

static const Key attention_keys[] = {
    {"rate", KEY_CUSTOM, .read = read_rate, .usage = "rate 150GFLOPS"},
    {"tokens", KEY_REAL, offsetof(HeadRate, tokens), .usage = "tokens 64"},
    {"dims", KEY_REAL, offsetof(HeadRate, dims), .usage = "dims 20"},
    {"type", KEY_WORD, offsetof(HeadRate, type), .words = attention_types, .usage = "type bf16"},
};

const char *const cluster_products[] = {"linear_fwd", "linear_bwd_x", "linear_bwd_w", NULL};
const char *const cluster_attention[] = {"attention_fwd", "attention_bwd", "attention_bwd_64", NULL};
const char *const cluster_moves[] = {
#define MOVE(id, word) word,
#include "frontend/moves.def"
#undef MOVE
    NULL};

/* A word of the table, then a block. NULL after diagnostics. */
static const Item *read_kind(Reader *reader, const Key *key, const char *const *words, int32_t *kind) {
  if (!read_word(reader, key, words, kind)) return NULL;
  state_once(reader, arena_printf(reader->sema->arena, "%s %s", key->name, words[*kind]), reader->key_span);
  return read_block_item(reader, key);
}

/* product linear_fwd { rate 190GFLOPS m 1 n 10 k 20 } */
static bool read_product(Reader *reader, const Key *key) {
  int32_t pass;
  const Item *block = read_kind(reader, key, cluster_products, &pass);
  if (!block) return false;
  READ_BLOCK(reader->sema, "product", product_keys, block->items, &((Device *)reader->target)->products[pass]);
  return true;
}

static bool read_attention(Reader *reader, const Key *key) {
  int32_t pass;
  const Item *block = read_kind(reader, key, cluster_attention, &pass);
  if (!block) return false;
  READ_BLOCK(reader->sema, "attention", attention_keys, block->items, &((Device *)reader->target)->attention[pass]);
  return true;
}

/* moves gelu_fwd { 1MiB 50us  16MiB 1ms } */
static bool read_moves(Reader *reader, const Key *key) {
  int32_t kind;
  const Item *block = read_kind(reader, key, cluster_moves, &kind);
  if (!block) return false;
  TimedSizes *sizes = &((Device *)reader->target)->moves[kind];
  if (!read_sizes(reader, key, block, sizes)) return true;
  for (uint32_t i = 1; i < sizes->count; i++) /* more bytes are never faster */
    if (sizes->data[i].ns < sizes->data[i - 1].ns) sizes->data[i].ns = sizes->data[i - 1].ns;
  return true;
}

static const char *const generation_words[] = {"other", "volta", "ampere", "ada", "hopper", "blackwell", NULL};

static const Key device_keys[] = {
    {"generation", KEY_WORD, DEVICE(generation), .words = generation_words, .usage = "generation hopper"},
    {"allocator", KEY_CUSTOM, .read = read_allocator, .usage = "allocator 79.1GiB"},
    {"clock", KEY_REAL, DEVICE(clock), .least = 0.1, .most = 1, .usage = "clock 0.9"},
    {"attention_tokens", KEY_REAL, DEVICE(attention_tokens), .usage = "attention_tokens 700"},
    {"name", KEY_STRING, DEVICE(name), .usage = "name \"...\""},
    {"memory", KEY_BYTES, DEVICE(memory_bytes), .usage = "memory 79GiB"},
    {"bandwidth", KEY_RATE, DEVICE(bandwidth), .least = 1, .usage = "bandwidth 3.35TB/s"},
    {"bandwidth_share", KEY_REAL, DEVICE(bandwidth_share), .least = 1e-3, .most = 1,
     .usage = "bandwidth_share 0.75"},
    {"peak", KEY_CUSTOM, .read = read_peak, .repeats = true, .usage = "peak bf16 989TFLOPS f32 67TFLOPS"},
    {"gemm_share", KEY_REAL, DEVICE(gemm_share), .least = 1e-3, .most = 1, .usage = "gemm_share 0.7"},
    {"gemm_prologue", KEY_REAL, DEVICE(gemm_prologue), .least = 1e-3, .usage = "gemm_prologue 128"},
    {"attention_share", KEY_REAL, DEVICE(attention_share), .least = 1e-3, .most = 1,
     .usage = "attention_share 0.4"},
    {"attention_backward", KEY_REAL, DEVICE(attention_backward), .least = 1e-3, .most = 1,
     .usage = "attention_backward 0.7"},
    {"tile_units", KEY_REAL, DEVICE(tile_units), .least = 1, .usage = "tile_units 132"},
    {"launch", KEY_NS, DEVICE(launch_ns), .usage = "launch 2us"},
    {"host_link", KEY_RATE, DEVICE(host_link), .usage = "host_link 55GB/s"},
    {"host_contention", KEY_REAL, DEVICE(host_contention), .most = 1, .usage = "host_contention 0.07"},
    {"host_memory", KEY_BYTES, DEVICE(host_memory), .usage = "host_memory 220GB"},
    {"product", KEY_CUSTOM, .read = read_product, .repeats = true, .usage = "product linear_fwd { rate 190GFLOPS  k 20 }"},
    {"attention", KEY_CUSTOM, .read = read_attention, .repeats = true, .usage = "attention attention_fwd { rate 150GFLOPS  tokens 64 }"},
    {"moves", KEY_CUSTOM, .read = read_moves, .repeats = true, .usage = "moves gelu_fwd { 1MiB 50us  16MiB 1ms }"},
    {"shared_queue", KEY_YES_NO, DEVICE(shared_queue), .usage = "shared_queue yes|no"},
};

static const Key network_keys[] = {
    {"bandwidth", KEY_RATE, LINK(bandwidth), .least = 1, .usage = "bandwidth 400GB/s"},
    {"latency", KEY_NS, LINK(latency_ns), .usage = "latency 5us"},
    {"efficiency", KEY_REAL, LINK(efficiency), .least = 1e-3, .most = 1, .usage = "efficiency 0.8"},
};

/* --- tables of measured collectives ------------------------------------------------------------------------------- */

static CollectiveTable *table_of(Sema *sema, Cluster *cluster, Collective kind, uint32_t ranks) {
  for (uint32_t i = 0; i < cluster->tables.count; i++) {
    CollectiveTable *table = &cluster->tables.data[i];
    if (table->kind != kind || table->ranks != ranks) continue;
    return table;
  }
  CollectiveTable *table = vec_add(sema->arena, &cluster->tables);
  table->kind = kind;
  table->ranks = ranks;
  return table;
}

/* Measurements are noisy below 8 MiB. A byte must not cost more in a longer message, nor a longer message less in all: the first
 * lets lower bounds add messages up, the second makes more bytes never faster. Points are raised, never lowered. */
static void smooth(CollectiveTable *table) {
  TimedSize *points = table->points.data;
  for (uint32_t i = table->points.count; i-- > 1;) {
    double least = points[i].ns * points[i - 1].bytes / points[i].bytes;
    if (points[i - 1].ns < least) points[i - 1].ns = least;
  }
  for (uint32_t i = 1; i < table->points.count; i++)
    if (points[i].ns < points[i - 1].ns) points[i].ns = points[i - 1].ns;
}

/* gather 8 { 1MiB 31us  2MiB 32us ... } */
static bool read_table(Reader *reader, const Key *key) {
  Collective kind = *key->name == 'g' ? COLLECTIVE_GATHER : *key->name == 'r' ? COLLECTIVE_REDUCE : COLLECTIVE_ALLREDUCE;
  Quantity ranks;
  if (!read_number(reader, key, QUANTITY_NUMBER, 2, CLUSTER_MAX_DEVICES, &ranks)) return false;
  if (!ranks.is_integer) return key_error(reader, key, reader->items->data[reader->at - 1].span, "a number of ranks must be a whole number");
  state_once(reader, arena_printf(reader->sema->arena, "%s %u", key->name, (uint32_t)ranks.value), reader->key_span);
  const Item *block = read_block_item(reader, key);
  if (!block) return false;
  CollectiveTable *table = table_of(reader->sema, reader->target, kind, (uint32_t)ranks.value);
  if (read_sizes(reader, key, block, &table->points)) smooth(table);
  return true;
}

#define TABLE_USAGE(name) {name, KEY_CUSTOM, .read = read_table, .repeats = true, .usage = name " 8 { 1MiB 31us  64MiB 214us }"}

/* The node's keys are a link's and the number of devices, kept beside it in Cluster. */
static const Key node_keys[] = {
    {"devices", KEY_COUNT, FIELD(node_devices), .least = 1, .most = CLUSTER_MAX_DEVICES,
     .usage = "devices 8"},
    {"bandwidth", KEY_RATE, FIELD(node) + LINK(bandwidth), .least = 1, .usage = "bandwidth 340GB/s"},
    {"reduce_bandwidth", KEY_RATE, FIELD(node) + LINK(reduce_bandwidth), .least = 1, .usage = "reduce_bandwidth 320GB/s"},
    {"latency", KEY_NS, FIELD(node) + LINK(latency_ns), .usage = "latency 40us"},
    TABLE_USAGE("gather"),
    TABLE_USAGE("reduce"),
    TABLE_USAGE("all_reduce"),
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

/* What is stated of a node's speed overrides all of that of the cluster used, measured times included, which would hide it. */
static void forget_speed(Cluster *cluster, const ItemList *items) {
  static const char *const keys[] = {"bandwidth", "reduce_bandwidth", "latency", "efficiency"};
  bool stated = false;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) stated |= key_stated(items, keys[i]) != NULL;
  if (stated) cluster->tables.count = 0;
  if (key_stated(items, "bandwidth")) cluster->node.reduce_bandwidth = 0;
}

static bool read_node(Reader *reader, const Key *key) {
  const Item *item = read_block_item(reader, key);
  if (item) forget_speed(reader->target, item->items);
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
    {"network_contention", KEY_REAL, FIELD(network_contention), .most = 1, .usage = "network_contention 0.2"},
    {"comm_slowdown", KEY_REAL, FIELD(comm_slowdown), .most = 1, .usage = "comm_slowdown 0.1"},
    {"compute_spread", KEY_REAL, FIELD(compute_spread), .most = 0.9, .usage = "compute_spread 0.08"},
    {"comm_spread", KEY_REAL, FIELD(comm_spread), .most = 0.9, .usage = "comm_spread 0.15"},
    {"price", KEY_PRICE, FIELD(price_per_hour), .usage = "price 2.5USD/h"},
};

const KeyTable settings_cluster_tables[] = {
    KEY_TABLE("cluster", cluster_keys),
    KEY_TABLE("device", device_keys),
    KEY_TABLE("node", node_keys),
    KEY_TABLE("network", network_keys),
    KEY_TABLE("product", product_keys),
    KEY_TABLE("attention", attention_keys),
    {0}};

/* A file is read once, so a block that is met again is the same one. */
static bool is_being_read(const Chain *chain, const Stmt *block) {
  while (chain && chain->block != block) chain = chain->outer;
  return chain != NULL;
}

static void read_file(Sema *sema, const char *path, Span at, const Chain *chain) {
  int32_t index = files_open(&sema->files, path, at);
  if (index < 0) return;
  const Ast *ast = sema->files.list.data[index].ast;
  for (uint32_t i = 0; i < ast->statements->count; i++) {
    const Stmt *stmt = ast->statements->data[i];
    if (stmt->kind != STMT_BLOCK || strcmp(stmt->type.text, "cluster")) continue;
    if (is_being_read(chain, stmt))
      sema_error(sema, at, "cluster files use one another in a circle");
    else
      read_cluster(sema, stmt, chain);
    return;
  }
  sema_error(sema, at, "\"%s\" states no cluster", path);
}

static void read_cluster(Sema *sema, const Stmt *block, const Chain *outer) {
  const Chain chain = {block, outer};
  const ItemList *items = block->items;
  bool uses = items->count > 0 && items->data[0].kind == ITEM_WORD && !strcmp(items->data[0].text, "use");
  if (uses && (items->count < 2 || items->data[1].kind != ITEM_STRING)) {
    sema_error(sema, items->data[0].span, "\"use\" needs a file name in quotes");
    return;
  }
  if (uses) read_file(sema, items->data[1].text, items->data[1].span, &chain);
  if (block->name.text) sema->graph->cluster.name = block->name.text;
  READ_BLOCK(sema, "cluster", cluster_keys, items, &sema->graph->cluster);
}

static bool need(Sema *sema, Span span, bool stated, const char *what, const char *help) {
  if (stated) return true;
  diag_help(sema_error(sema, span, "the cluster does not state %s", what), "%s", help);
  return false;
}

/* What a plan cannot be made without; the rest has defaults, all of them assumptions of the cost model. */
static void check_cluster(Sema *sema, Span span) {
  Cluster *cluster = &sema->graph->cluster;
  Device *device = &cluster->device;
  if (!need(sema, span, device->kind != DEVICE_NONE, "its device", "add `device gpu { ... }`") ||
      !need(sema, span, device->memory_bytes > 0, "the memory of a device", "add `memory 79GiB` to its device") ||
      !need(sema, span, device->bandwidth > 0, "the bandwidth of a device", "add `bandwidth 3.35TB/s` to its device") ||
      !need(sema, span, device->peak[DTYPE_F32] > 0, "the peak of a device for f32", "add `peak f32 67TFLOPS` to its device") ||
      !need(sema, span, cluster->node_devices == 1 || cluster->node.bandwidth > 0,
            "the bandwidth between devices of a node", "add `bandwidth 340GB/s` to its node") ||
      !need(sema, span, cluster->nodes == 1 || cluster->network.bandwidth > 0,
            "the network between its nodes", "state how fast it is: `network { bandwidth 400GB/s latency 5us }`"))
    return;
  if (!device->name) device->name = cluster->name;
  if (device->bandwidth_share == 0) device->bandwidth_share = 0.755;
  if (device->gemm_share == 0) device->gemm_share = 0.7;
  if (device->attention_share == 0) device->attention_share = 0.37;
  if (device->attention_backward == 0) device->attention_backward = 0.68;
  if (device->tile_units == 0) device->tile_units = 1;
  if (device->clock == 0) device->clock = 1;
  if (cluster->node.efficiency == 0) cluster->node.efficiency = 1;
  if (cluster->network.efficiency == 0) cluster->network.efficiency = 1;
  if (cluster->network_contention == 0) cluster->network_contention = cluster->contention;
  for (int i = 0; i < DTYPE_COUNT; i++) /* types without an own unit run at the speed of f32 */
    if (device->peak[i] == 0) device->peak[i] = device->peak[DTYPE_F32];
}

void settings_cluster(Sema *sema, const Stmt *block) {
  uint32_t errors = sema->sink->errors;
  read_cluster(sema, block, NULL);
  if (sema->sink->errors == errors) check_cluster(sema, block->span);
}

/* --cluster takes a path, or the bare name of a file in the models folder's clusters/. */
void settings_cluster_file(Sema *sema, const char *path) {
  uint32_t errors = sema->sink->errors;
  bool bare = !strchr(path, '/') && !strchr(path, '.');
  const char *own = arena_printf(sema->arena, "%s.fsdp", path), *named = arena_printf(sema->arena, "clusters/%s", own);
  if (bare && access(own, R_OK) == 0 && access(arena_printf(sema->arena, "%s/%s", sema->files.models, named), R_OK) != 0)
    diag_help(diag_error(sema->sink, SPAN_NONE, "the models folder has no cluster \"%s\"", path), "the file in this folder is --cluster %s", own);
  else
    read_file(sema, bare ? named : path, SPAN_NONE, NULL);
  if (sema->sink->errors == errors) check_cluster(sema, SPAN_NONE);
}
