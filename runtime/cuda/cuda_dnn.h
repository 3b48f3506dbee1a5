/* Owns: graphs of cuDNN's backend API in the few words that attention needs: tensors, operations on them, and the plan that
 * runs them as one kernel. Errors stick: after the first one nothing more is done, and dnn_build says what it was. */
#ifndef FSDPC_RUNTIME_CUDA_DNN_H
#define FSDPC_RUNTIME_CUDA_DNN_H

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

typedef cudnnBackendDescriptor_t DnnTensor;

enum {
  DNN_DESCRIPTORS = 192, /* of one graph */
  DNN_OPERATIONS = 32,
  DNN_MINIMUM = 91002 /* before 9.10 a mask of -infinity is not safe, and 9.10.0 and 9.10.1 compute attention wrongly */
};

/*  X(name): functions of cuDNN */
#define CUDNN_FUNCTIONS(X)                                                                                   \
  X(cudnnBackendCreateDescriptor)                                                                            \
  X(cudnnBackendDestroyDescriptor)                                                                           \
  X(cudnnBackendExecute)                                                                                     \
  X(cudnnBackendFinalize)                                                                                    \
  X(cudnnBackendGetAttribute)                                                                                \
  X(cudnnBackendSetAttribute)                                                                                \
  X(cudnnCreate)                                                                                             \
  X(cudnnDestroy)                                                                                            \
  X(cudnnGetErrorString)                                                                                     \
  X(cudnnGetLastErrorString)                                                                                 \
  X(cudnnGetVersion)                                                                                         \
  X(cudnnSetStream)

typedef struct Dnn {
#define X(name) __typeof__(&name) name;
  CUDNN_FUNCTIONS(X)
#undef X
} Dnn;

/* library: of dlopen. False: it lacks a function, or is older than DNN_MINIMUM. */
bool dnn_load(Dnn *dnn, void *library);

/* Sizes and strides in elements of batch, head, row and column. */
typedef struct DnnView {
  int64_t dim[4], stride[4];
} DnnView;

typedef enum {
  DNN_STORED, /* on 16 bytes */
  DNN_LOOSE,  /* stored, aligned as its elements only */
  DNN_VIRTUAL,
  DNN_SCALAR /* by value: the address given to dnn_bind is the host's */
} DnnKind;

/* An engine by its number in cuDNN, and how it is set. */
enum { DNN_KNOBS = 12 };
typedef struct DnnEngine {
  int64_t number;
  int knob_count;
  struct {
    cudnnBackendKnobType_t knob;
    int64_t value;
  } knobs[DNN_KNOBS];
} DnnEngine;

typedef struct DnnGraph {
  const Dnn *dnn;
  cudnnBackendDescriptor_t made[DNN_DESCRIPTORS], operations[DNN_OPERATIONS];
  uint32_t made_count, operation_count;
  cudnnBackendDescriptor_t plan; /* of dnn_build */
  int64_t workspace_bytes;       /* exact, known without a GPU */
  DnnEngine engine;              /* what the plan runs by */
  char error[256];               /* "": none */
} DnnGraph;

/* id: what dnn_bind calls it; unique in the graph, of virtual tensors too. */
DnnTensor dnn_tensor(DnnGraph *graph, int64_t id, cudnnDataType_t type, DnnKind kind, DnnView view);
void dnn_matmul(DnnGraph *graph, DnnTensor a, DnnTensor b, DnnTensor c);
/* y = mode(x, b), or mode(x) when b is NULL; BINARY_SELECT: x where t holds, else b; axis: of GEN_INDEX, -1 elsewhere. */
void dnn_pointwise(DnnGraph *graph, cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor b, DnnTensor t, int64_t axis,
                   cudnnDataType_t compute, DnnTensor y);
/* Over the dimensions that y has only one of. */
void dnn_reduce(DnnGraph *graph, cudnnReduceTensorOp_t op, DnnTensor x, DnnTensor y);
void dnn_reshape(DnnGraph *graph, DnnTensor x, DnnTensor y);

/* A GPU, which must exist: NULL when cuDNN does not take it. */
cudnnBackendDescriptor_t dnn_device(const Dnn *dnn, int32_t id);
/* A GPU described in cuDNN's own JSON, which need not exist. */
cudnnBackendDescriptor_t dnn_device_described(const Dnn *dnn, const char *json);

/* Makes the plan: by this engine; or, NULL, by the heuristic's first choice that builds and does not call itself
 * nondeterministic: the same in every run. That results repeat is the graph's doing, not this choice's: engines that add in any
 * order by atomics (dq in attention, where it is an accumulator) say nothing of it.
 * False with graph->error. Takes about a second: kernels are compiled. */
bool dnn_build(DnnGraph *graph, cudnnBackendDescriptor_t device, const DnnEngine *engine);
/* The plan with addresses of its stored tensors and scalars; NULL on failure. */
cudnnBackendDescriptor_t dnn_bind(const Dnn *dnn, const int64_t *ids, void *const *addresses, int64_t count,
                                  void *workspace);
void dnn_destroy(DnnGraph *graph);

#endif
