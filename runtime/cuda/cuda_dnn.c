/* Owns: cuDNN's descriptors: making, filling, finalising and destroying them. */
#include "runtime/cuda/cuda_dnn.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { MOST_CONFIGS = 16, MOST_NOTES = 16 };

/* Function pointers pass through memory: ISO C has no cast from void *. */
static bool resolve(void *library, const char *name, void *to) {
  void *function = dlsym(library, name);
  memcpy(to, &function, sizeof function);
  return function != NULL;
}

bool dnn_load(Dnn *dnn, void *library) {
  bool ok = true;
#define X(name) ok = ok && resolve(library, #name, &dnn->name);
  CUDNN_FUNCTIONS(X)
#undef X
  return ok && dnn->cudnnGetVersion() >= DNN_MINIMUM;
}

/* --- descriptors -------------------------------------------------------------------------------------------------- */

static void check(DnnGraph *g, cudnnStatus_t status, const char *what) {
  char reason[160] = "";
  if (status == CUDNN_STATUS_SUCCESS || g->error[0] != '\0') return;
  g->dnn->cudnnGetLastErrorString(reason, sizeof reason);
  snprintf(g->error, sizeof g->error, "%s: %s %s", what, g->dnn->cudnnGetErrorString(status), reason);
}

static cudnnBackendDescriptor_t make(DnnGraph *g, cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = NULL;
  if (g->error[0] != '\0') return NULL;
  if (g->made_count == DNN_DESCRIPTORS) {
    snprintf(g->error, sizeof g->error, "a graph of more than %d descriptors", (int)DNN_DESCRIPTORS);
    return NULL;
  }
  check(g, g->dnn->cudnnBackendCreateDescriptor(type, &made), "a descriptor");
  if (made != NULL) g->made[g->made_count++] = made;
  return made;
}

static void set(DnnGraph *g, cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *value) {
  char what[32];
  if (g->error[0] != '\0') return;
  snprintf(what, sizeof what, "attribute %d", (int)name);
  check(g, g->dnn->cudnnBackendSetAttribute(to, name, type, count, value), what);
}

static void set_descriptor(DnnGraph *g, cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t value) {
  set(g, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_type(DnnGraph *g, cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name, cudnnDataType_t type) {
  set(g, to, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

static bool finish(DnnGraph *g, cudnnBackendDescriptor_t descriptor, const char *what) {
  if (g->error[0] == '\0') check(g, g->dnn->cudnnBackendFinalize(descriptor), what);
  return g->error[0] == '\0';
}

static void add_operation(DnnGraph *g, cudnnBackendDescriptor_t operation, const char *what) {
  if (!finish(g, operation, what)) return;
  if (g->operation_count < DNN_OPERATIONS) g->operations[g->operation_count++] = operation;
  else snprintf(g->error, sizeof g->error, "a graph of more than %d operations", (int)DNN_OPERATIONS);
}

/* --- tensors and operations --------------------------------------------------------------------------------------- */

DnnTensor dnn_tensor(DnnGraph *g, int64_t id, cudnnDataType_t type, DnnKind kind, DnnView view) {
  cudnnBackendDescriptor_t tensor = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int64_t alignment = kind == DNN_LOOSE ? (int64_t)sizeof(float) : 16;
  const bool is_virtual = kind == DNN_VIRTUAL, by_value = kind == DNN_SCALAR;
  set_type(g, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  set(g, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, view.dim);
  set(g, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, view.stride);
  set(g, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  set(g, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  set(g, tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  set(g, tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  finish(g, tensor, "a tensor");
  return tensor;
}

void dnn_matmul(DnnGraph *g, DnnTensor a, DnnTensor b, DnnTensor c) {
  cudnnBackendDescriptor_t kind = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set_type(g, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  finish(g, kind, "a matmul");
  cudnnBackendDescriptor_t operation = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  add_operation(g, operation, "a matmul");
}

void dnn_pointwise(DnnGraph *g, cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor b, DnnTensor t, int64_t axis,
                   cudnnDataType_t compute, DnnTensor y) {
  cudnnBackendDescriptor_t kind = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(g, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set_type(g, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, compute);
  if (axis >= 0) set(g, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
  finish(g, kind, "an element-wise operation");
  cudnnBackendDescriptor_t operation = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != NULL) set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  if (t != NULL) set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  add_operation(g, operation, "an element-wise operation");
}

void dnn_reduce(DnnGraph *g, cudnnReduceTensorOp_t op, DnnTensor x, DnnTensor y) {
  cudnnBackendDescriptor_t kind = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  set_type(g, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  set(g, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
  finish(g, kind, "a reduction");
  cudnnBackendDescriptor_t operation = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  add_operation(g, operation, "a reduction");
}

void dnn_reshape(DnnGraph *g, DnnTensor x, DnnTensor y) {
  cudnnBackendDescriptor_t operation = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  add_operation(g, operation, "a reshape");
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

static cudnnBackendDescriptor_t device_of(const Dnn *dnn, cudnnBackendAttributeName_t name,
                                          cudnnBackendAttributeType_t type, int64_t count, const void *value) {
  cudnnBackendDescriptor_t device = NULL;
  if (dnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device) != CUDNN_STATUS_SUCCESS) return NULL;
  if (dnn->cudnnBackendSetAttribute(device, name, type, count, value) == CUDNN_STATUS_SUCCESS &&
      dnn->cudnnBackendFinalize(device) == CUDNN_STATUS_SUCCESS)
    return device;
  dnn->cudnnBackendDestroyDescriptor(device);
  return NULL;
}

cudnnBackendDescriptor_t dnn_device(const Dnn *dnn, int32_t id) {
  return device_of(dnn, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &id);
}

cudnnBackendDescriptor_t dnn_device_described(const Dnn *dnn, const char *json) {
  return device_of(dnn, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json), json);
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

static cudnnBackendDescriptor_t operation_graph(DnnGraph *g) {
  cudnnBackendDescriptor_t graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operation_count, g->operations);
  finish(g, graph, "the graph");
  return graph;
}

/* Returns how many engines could run the graph, best first. */
static int64_t ask_heuristic(DnnGraph *g, cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t device,
                             cudnnBackendDescriptor_t configs[MOST_CONFIGS]) {
  cudnnBackendDescriptor_t heuristic = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  int64_t found = 0;
  set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  finish(g, heuristic, "the heuristic");
  for (int i = 0; i < MOST_CONFIGS; i++) configs[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (g->error[0] != '\0') return 0;
  check(g, g->dnn->cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                             MOST_CONFIGS, &found, configs),
        "the heuristic's choices");
  return found < MOST_CONFIGS ? found : MOST_CONFIGS;
}

/* Returns how many there are, at most `room`; 0 where cuDNN does not say. */
static int64_t get(DnnGraph *g, cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t room, void *values) {
  int64_t count = 0;
  if (from == NULL || g->dnn->cudnnBackendGetAttribute(from, name, type, room, &count, values) != CUDNN_STATUS_SUCCESS) return 0;
  return count < room ? count : room;
}

static cudnnBackendDescriptor_t engine_of(DnnGraph *g, cudnnBackendDescriptor_t config) {
  cudnnBackendDescriptor_t engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  return engine != NULL && get(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine) == 1 ? engine : NULL;
}

/* Says the engine of itself that results may differ from run to run, or does it say nothing at all? */
static bool unsteady(DnnGraph *g, cudnnBackendDescriptor_t config) {
  cudnnBackendNumericalNote_t notes[MOST_NOTES];
  int64_t count = get(g, engine_of(g, config), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES, notes);
  if (count == 0) return true;
  for (int64_t i = 0; i < count; i++)
    if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return true;
  return false;
}

/* For people to read: what cuDNN does not say is left out. */
static DnnEngine engine_described(DnnGraph *g, cudnnBackendDescriptor_t config) {
  DnnEngine e = {.number = -1};
  cudnnBackendDescriptor_t choices[DNN_KNOBS];
  get(g, engine_of(g, config), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &e.number);
  for (int i = 0; i < DNN_KNOBS; i++) choices[i] = make(g, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
  if (g->error[0] == '\0')
    e.knob_count = (int)get(g, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, DNN_KNOBS, choices);
  for (int i = 0; i < e.knob_count; i++) {
    get(g, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &e.knobs[i].knob);
    get(g, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &e.knobs[i].value);
  }
  return e;
}

static bool try_config(DnnGraph *g, cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t device) {
  cudnnBackendDescriptor_t plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  int64_t count = 0;
  set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
  if (!finish(g, plan, "the plan")) return false;
  check(g, g->dnn->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                             &g->workspace_bytes),
        "the workspace's size");
  g->plan = plan;
  g->engine = engine_described(g, config);
  return g->error[0] == '\0';
}

static cudnnBackendDescriptor_t config_of(DnnGraph *g, cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t device,
                                          const DnnEngine *e) {
  cudnnBackendDescriptor_t engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR), choices[DNN_KNOBS];
  set_descriptor(g, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
  set_descriptor(g, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, device);
  set(g, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &e->number);
  finish(g, engine, "the engine");
  for (int i = 0; i < e->knob_count; i++) {
    choices[i] = make(g, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    set(g, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &e->knobs[i].knob);
    set(g, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &e->knobs[i].value);
    finish(g, choices[i], "a knob");
  }
  cudnnBackendDescriptor_t config = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  set_descriptor(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  set(g, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, e->knob_count, choices);
  finish(g, config, "the engine's knobs");
  return config;
}

bool dnn_build(DnnGraph *g, cudnnBackendDescriptor_t device, const DnnEngine *engine) {
  cudnnBackendDescriptor_t configs[MOST_CONFIGS], graph = operation_graph(g);
  if (engine != NULL) return try_config(g, config_of(g, graph, device, engine), device);
  int64_t found = ask_heuristic(g, graph, device, configs);
  char last[sizeof g->error] = "no engine has this graph";
  for (int64_t i = 0; i < found && g->error[0] == '\0'; i++) {
    if (unsteady(g, configs[i])) continue;
    if (try_config(g, configs[i], device)) return true;
    memcpy(last, g->error, sizeof last); /* an engine that does not build leaves the choice to the next */
    g->error[0] = '\0';
  }
  if (g->error[0] == '\0') memcpy(g->error, last, sizeof last);
  return false;
}

cudnnBackendDescriptor_t dnn_bind(const Dnn *dnn, const int64_t *ids, void *const *addresses, int64_t count,
                                  void *workspace) {
  cudnnBackendDescriptor_t pack = NULL;
  if (dnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack) != CUDNN_STATUS_SUCCESS) return NULL;
#define SET(name, type, n, value) dnn->cudnnBackendSetAttribute(pack, name, type, n, value) == CUDNN_STATUS_SUCCESS
  if (SET(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids) &&
      SET(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses) &&
      SET(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace) &&
      dnn->cudnnBackendFinalize(pack) == CUDNN_STATUS_SUCCESS)
    return pack;
#undef SET
  dnn->cudnnBackendDestroyDescriptor(pack);
  return NULL;
}

void dnn_destroy(DnnGraph *g) {
  while (g->made_count > 0) g->dnn->cudnnBackendDestroyDescriptor(g->made[--g->made_count]);
  g->operation_count = 0;
  g->plan = NULL;
}
