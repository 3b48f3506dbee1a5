/* Owns: a stand-in for cuDNN's backend API, there when FAKE_CUDNN is set: keeps descriptors and, when a plan is executed,
 * computes its operations one after another on the CPU, through the views that the descriptors give. So what is written in
 * runtime/cuda/cuda_flash_plan.c is checked for what it means; whether cuDNN has a kernel for it is not.
 *
 * The heuristic offers two engines. The first says of itself that it is not deterministic, and fails when executed. */
#include "kernels/half.h"
#include "tests/cuda/fake/fake_cuda.h"

#include <cudnn.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

namespace {

/* FAKE_CUDNN_WORKSPACE: the bytes that every plan needs. */
int64_t workspace_bytes() {
  const char *bytes = getenv("FAKE_CUDNN_WORKSPACE");
  return bytes != nullptr ? atoll(bytes) : 256;
}

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  std::map<int, std::vector<unsigned char>> attributes;
  bool final = false;

  template <class T> std::vector<T> all(int name) const {
    auto it = attributes.find(name);
    if (it == attributes.end()) return {};
    std::vector<T> out(it->second.size() / sizeof(T));
    memcpy(out.data(), it->second.data(), out.size() * sizeof(T));
    return out;
  }
  template <class T> T one(int name, T otherwise = T()) const {
    auto values = all<T>(name);
    return values.empty() ? otherwise : values[0];
  }
  const Descriptor &at(int name) const { return *one<const Descriptor *>(name); }
  bool has(int name) const { return attributes.count(name) != 0; }
};

size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    default: return 4;
  }
}

template <class T> void put(Descriptor *d, int name, T value) {
  std::vector<unsigned char> bytes(sizeof value);
  memcpy(bytes.data(), &value, sizeof value);
  d->attributes[name] = bytes;
}

/* --- computing ---------------------------------------------------------------------------------------------------- */

typedef std::vector<float> Values; /* in order of indices, the last one fastest */

struct Run {
  std::map<int64_t, void *> stored; /* address by id */
  std::map<int64_t, Values> made;   /* virtual tensors */
};

/* The element's place in memory, in elements. */
struct View {
  int64_t dim[4], stride[4];
  explicit View(const Descriptor &t) {
    memcpy(dim, t.attributes.at(CUDNN_ATTR_TENSOR_DIMENSIONS).data(), sizeof dim);
    memcpy(stride, t.attributes.at(CUDNN_ATTR_TENSOR_STRIDES).data(), sizeof stride);
  }
  int64_t count() const { return dim[0] * dim[1] * dim[2] * dim[3]; }
  int64_t place(int64_t i) const {
    int64_t at = 0;
    for (int d = 3; d >= 0; d--) at += i % dim[d] * stride[d], i /= dim[d];
    return at;
  }
};

float rounded(cudnnDataType_t type, float x) {
  return type == CUDNN_DATA_BFLOAT16 ? float_of_bf16(bf16_of_float(x)) : type == CUDNN_DATA_HALF ? float_of_f16(f16_of_float(x)) : x;
}

float fetch(const void *p, cudnnDataType_t type, int64_t at) {
  if (type == CUDNN_DATA_FLOAT) return ((const float *)p)[at];
  Half half = ((const Half *)p)[at];
  return type == CUDNN_DATA_BFLOAT16 ? float_of_bf16(half) : float_of_f16(half);
}

void deposit(void *p, cudnnDataType_t type, int64_t at, float x) {
  if (type == CUDNN_DATA_FLOAT) ((float *)p)[at] = x;
  else ((Half *)p)[at] = type == CUDNN_DATA_BFLOAT16 ? bf16_of_float(x) : f16_of_float(x);
}

cudnnDataType_t type_of(const Descriptor &t) { return t.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE); }

/* Where it is stored; it must be aligned as the descriptor promised. */
void *place_of(const Run &run, const Descriptor &t) {
  void *at = run.stored.at(t.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID));
  if (!t.one<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) && (uintptr_t)at % (uintptr_t)t.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) != 0)
    fprintf(stderr, "fake cuDNN: a tensor is not aligned as was said\n"), abort();
  return at;
}

Values read(Run &run, const Descriptor &t) {
  int64_t id = t.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  if (t.one<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)) return run.made.at(id);
  View view(t);
  const void *from = place_of(run, t);
  Values out((size_t)view.count());
  for (size_t i = 0; i < out.size(); i++) out[i] = fetch(from, type_of(t), view.place((int64_t)i));
  return out;
}

void write(Run &run, const Descriptor &t, Values values) {
  int64_t id = t.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  View view(t);
  cudnnDataType_t type = type_of(t);
  void *to = t.one<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) ? nullptr : place_of(run, t);
  for (size_t i = 0; i < values.size(); i++) {
    values[i] = rounded(type, values[i]);
    if (to != nullptr) deposit(to, type, view.place((int64_t)i), values[i]);
  }
  run.made[id] = std::move(values);
}

/* Of index i in y's dimensions, the index in x's, which are as many or fewer: equal parts of y share one of x. */
int64_t shared(const View &y, const View &x, int64_t i) {
  int64_t at = 0, step = 1;
  for (int d = 3; d >= 0; d--) {
    at += i % y.dim[d] / (y.dim[d] / x.dim[d]) * step;
    step *= x.dim[d], i /= y.dim[d];
  }
  return at;
}

void matmul(Run &run, const Descriptor &op) {
  const Descriptor &ta = op.at(CUDNN_ATTR_OPERATION_MATMUL_ADESC), &tb = op.at(CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  const Descriptor &tc = op.at(CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  View va(ta), vb(tb), vc(tc);
  Values a = read(run, ta), b = read(run, tb), c((size_t)vc.count());
  int64_t m = vc.dim[2], n = vc.dim[3], k = va.dim[3];
  for (int64_t i = 0; i < (int64_t)c.size(); i++) {
    int64_t batch = i / (m * n), row = i / n % m, col = i % n, heads = vc.dim[1];
    int64_t head = batch / heads * vb.dim[1] + batch % heads / (heads / vb.dim[1]);
    double sum = 0;
    for (int64_t j = 0; j < k; j++) sum += (double)a[(size_t)((batch * m + row) * k + j)] * b[(size_t)((head * k + j) * n + col)];
    c[(size_t)i] = (float)sum;
  }
  write(run, tc, c);
}

float pointwise(cudnnPointwiseMode_t mode, float x, float b, float t) {
  switch (mode) {
    case CUDNN_POINTWISE_IDENTITY: return x;
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return std::exp(x);
    case CUDNN_POINTWISE_LOG: return std::log(x);
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
    default: fprintf(stderr, "fake cuDNN: no element-wise operation %d\n", (int)mode), abort();
  }
}

void apply(Run &run, const Descriptor &op) {
  const Descriptor &kind = op.at(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), &ty = op.at(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  cudnnPointwiseMode_t mode = kind.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  const int names[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  View view(ty), views[3] = {view, view, view};
  Values in[3], y((size_t)view.count());
  int64_t axis = kind.one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS);
  for (int j = 0; j < 3; j++)
    if (op.has(names[j])) in[j] = read(run, op.at(names[j])), views[j] = View(op.at(names[j]));
  for (int64_t i = 0; i < (int64_t)y.size(); i++) {
    if (mode == CUDNN_POINTWISE_GEN_INDEX) {
      y[(size_t)i] = (float)(axis == 2 ? i / view.dim[3] % view.dim[2] : i % view.dim[3]);
      continue;
    }
    float v[3] = {0, 0, 0};
    for (int j = 0; j < 3; j++)
      if (!in[j].empty()) v[j] = in[j][(size_t)shared(view, views[j], i)];
    y[(size_t)i] = pointwise(mode, v[0], v[1], v[2]);
  }
  write(run, ty, y);
}

void reduce(Run &run, const Descriptor &op) {
  const Descriptor &tx = op.at(CUDNN_ATTR_OPERATION_REDUCTION_XDESC), &ty = op.at(CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
  bool most = op.at(CUDNN_ATTR_OPERATION_REDUCTION_DESC).one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX;
  View vx(tx), vy(ty);
  Values x = read(run, tx), y((size_t)vy.count(), most ? -INFINITY : 0);
  for (int64_t i = 0; i < (int64_t)x.size(); i++) {
    float &to = y[(size_t)shared(vx, vy, i)];
    to = most ? std::fmax(to, x[(size_t)i]) : to + x[(size_t)i];
  }
  write(run, ty, y);
}

/* The same memory through another view. */
void reshape(Run &run, const Descriptor &op) {
  const Descriptor &tx = op.at(CUDNN_ATTR_OPERATION_RESHAPE_XDESC), &ty = op.at(CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
  View vx(tx), vy(ty);
  Values x = read(run, tx), y(x.size()), memory((size_t)vx.place(vx.count() - 1) + 1, NAN);
  for (int64_t i = 0; i < (int64_t)x.size(); i++) memory[(size_t)vx.place(i)] = x[(size_t)i];
  for (int64_t i = 0; i < (int64_t)y.size(); i++) y[(size_t)i] = memory.at((size_t)vy.place(i));
  write(run, ty, y);
}

struct Job {
  const Descriptor *graph;
  const Descriptor *pack;
};

void compute(void *arg) {
  Job job;
  memcpy(&job, arg, sizeof job);
  Run run;
  auto ids = job.pack->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  auto addresses = job.pack->all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (size_t i = 0; i < ids.size(); i++) run.stored[ids[i]] = addresses[i];
  memset(job.pack->one<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE), 0xff, (size_t)workspace_bytes());
  for (const Descriptor *op : job.graph->all<const Descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    if (op->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) matmul(run, *op);
    else if (op->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) apply(run, *op);
    else if (op->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) reduce(run, *op);
    else reshape(run, *op);
  }
}

void *stream_of_handle; /* the only handle's */

} // namespace

/* --- the API: cuda_dnn.c finds it by dlsym in this program ---------------------------------------------------------- */

extern "C" {

size_t cudnnGetVersion(void) {
  const char *other = getenv("FAKE_CUDNN_VERSION");
  return other != nullptr ? (size_t)atoll(other) : 91900;
}
const char *cudnnGetErrorString(cudnnStatus_t status) { return status == CUDNN_STATUS_SUCCESS ? "fine" : "not fine"; }
void cudnnGetLastErrorString(char *message, size_t max_size) { snprintf(message, max_size, "(fake)"); }
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) { return *handle = (cudnnHandle_t)&stream_of_handle, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnDestroy(cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t stream) { return stream_of_handle = stream, CUDNN_STATUS_SUCCESS; }

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out) {
  *out = new Descriptor{type, {}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
  delete (Descriptor *)d;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
  Descriptor *d = (Descriptor *)to;
  if (d->final) return CUDNN_STATUS_NOT_INITIALIZED;
  const unsigned char *bytes = (const unsigned char *)values;
  d->attributes[name].assign(bytes, bytes + (size_t)count * size_of(type));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
  ((Descriptor *)d)->final = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t room, int64_t *count, void *values) {
  const Descriptor *d = (const Descriptor *)from;
  *count = 1;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) return *(int64_t *)values = workspace_bytes(), CUDNN_STATUS_SUCCESS;
  if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX) return *(int64_t *)values = d->one<int64_t>(name), CUDNN_STATUS_SUCCESS;
  if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
    *(cudnnBackendNumericalNote_t *)values =
        d->one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX) == 0 ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC : CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    return CUDNN_STATUS_SUCCESS;
  }
  Descriptor **out = (Descriptor **)values;
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE) return *out[0] = *d, CUDNN_STATUS_SUCCESS;
  if (name != CUDNN_ATTR_ENGINEHEUR_RESULTS || room < 2) return CUDNN_STATUS_NOT_SUPPORTED;
  *count = 2;
  for (int64_t i = 0; i < 2; i++) {
    put(out[i], CUDNN_ATTR_ENGINE_OPERATION_GRAPH, &d->at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
    put(out[i], CUDNN_ATTR_ENGINE_GLOBAL_INDEX, i);
  }
  return CUDNN_STATUS_SUCCESS;
}

/* FAKE_CUDNN=refuses: nothing is launched. */
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  const Descriptor &config = ((Descriptor *)plan)->at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (config.one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX) == 0 || strcmp(getenv("FAKE_CUDNN"), "refuses") == 0) return CUDNN_STATUS_EXECUTION_FAILED;
  Job job = {&config.at(CUDNN_ATTR_ENGINE_OPERATION_GRAPH), (const Descriptor *)pack};
  fake_cuda_enqueue(stream_of_handle, compute, &job, sizeof job);
  return CUDNN_STATUS_SUCCESS;
}
}
