/* Owns: a libcuda.so.1 without a GPU, enough for cuDNN to compile kernels and to think them loaded: it looks these up by
 * name. Everything else says what NVIDIA's stub library says, CUDA_ERROR_STUB_LIBRARY. */
enum { STUB_LIBRARY = 34 };
/* clang-format off */
#define ABSENT(X) \
  X(cuCtxGetCurrent) X(cuCtxGetDevice) X(cuCtxGetLimit) X(cuCtxPopCurrent) X(cuCtxPushCurrent) X(cuDeviceGet) \
  X(cuDeviceGetAttribute) X(cuDeviceGetCount) X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxReset) \
  X(cuDevicePrimaryCtxRetain) X(cuDriverGetVersion) X(cuFuncGetAttribute) X(cuFuncSetAttribute) X(cuGetErrorName) \
  X(cuGetErrorString) X(cuInit) X(cuKernelGetAttribute) X(cuLaunchCooperativeKernel) X(cuLaunchKernel) \
  X(cuLaunchKernelEx) X(cuLibraryLoadFromFile) X(cuLinkAddData) X(cuLinkAddData_v2) X(cuLinkAddFile_v2) \
  X(cuLinkComplete) X(cuLinkCreate) X(cuLinkCreate_v2) X(cuLinkDestroy) X(cuMemcpyDtoH_v2) X(cuModuleGetFunction) \
  X(cuModuleGetGlobal_v2) X(cuModuleLoadData) X(cuModuleLoadDataEx) X(cuModuleLoadFatBinary) X(cuModuleUnload) \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(cuOccupancyMaxPotentialClusterSize) X(cuStreamGetCtx) \
  X(cuStreamSynchronize) X(cuTensorMapEncodeTiled)
/* clang-format on */
#define DEFINE(name)                                                                                         \
  int name(void);                                                                                            \
  int name(void) { return STUB_LIBRARY; }
ABSENT(DEFINE)

static int handle;
int cuLibraryLoadData(void **library);
int cuLibraryLoadData(void **library) { return *library = &handle, 0; }
int cuLibraryGetKernel(void **kernel);
int cuLibraryGetKernel(void **kernel) { return *kernel = &handle, 0; }
int cuKernelSetAttribute(void);
int cuKernelSetAttribute(void) { return 0; }
int cuLibraryUnload(void);
int cuLibraryUnload(void) { return 0; }
