static inline bool attention_mma_ok(const AttentionShape *, CudaTensor, CudaTensor, CudaTensor, CudaTensor) { return false; }
static inline int attention_mma_fwd(CudaStream, const AttentionShape *, CudaTensor, CudaTensor, CudaTensor, CudaTensor, float *) { return 1; }
template <class T> static int attention_mma_bwd(CudaStream, const Attention<T> &) { return 1; }
