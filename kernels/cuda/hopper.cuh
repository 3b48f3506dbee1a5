/* Owns: Hopper's own instructions (compute 9.0a): products of a warpgroup out of shared memory, barriers that count arrivals, copies in
 * bulk from shared to device memory, registers moved between warpgroups. tests/cuda/shim has the same names for the CPU.
 *
 * A tile is rows of 64 elements of 16 bits, 128 bytes each, at a multiple of 1024 bytes; of row r the 16 bytes that are piece p
 * lie at piece p ^ (r % 8) ("128-byte swizzle": eight rows' piece p meet no bank twice). As an operand its rows are either rows of A
 * or columns of B (elements along k: "K-major"), or steps along k (transposed: "MN-major"); then the tile is 64 wide and no more. */
#ifndef FSDPC_KERNELS_CUDA_HOPPER_CUH
#define FSDPC_KERNELS_CUDA_HOPPER_CUH

#include "kernels/cuda/device.cuh"

constexpr int GROUP_THREADS = 128; /* of a warpgroup */
constexpr int TILE_WIDTH = 64, TILE_ROW_BYTES = 128;

/* Byte of a tile at which piece p (8 elements) of row r lies. */
DEVICE int tile_at(int r, int p) { return r * TILE_ROW_BYTES + ((p ^ (r & 7)) << 4); }

#ifndef FSDPC_SHIM
#include <cuda.h>

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define NOT_HOPPER 1 /* this compilation is for other GPUs: the kernel has no body */
#endif
#define DYNAMIC_TILES(name) extern __shared__ __align__(1024) unsigned char name[]
#define ALLOW_SHARED_HOPPER(kernel, bytes) ALLOW_SHARED(kernel, bytes) /* up to 227 KiB */

DEVICE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* --- barriers: a phase ends when so many threads have arrived; phases alternate between parities 0 and 1 ------------------------ */

DEVICE void mbarrier_init(uint64_t *b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
}
/* By the thread that initialized, before others hear of it. */
DEVICE void mbarriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void mbarrier_arrive(uint64_t *b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
/* Until the phase of this parity has ended; of a fresh barrier, the phase of parity 1 has. */
DEVICE void mbarrier_wait(uint64_t *b, int parity) {
  asm volatile("{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(
                   shared_address(b)),
               "r"(parity)
               : "memory");
}
/* All of so many threads; ids 1 to 15. */
DEVICE void named_barrier(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

/* Counts as so many threads of those that named_barrier waits for, and goes on. */
DEVICE void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

/* What this thread wrote to shared memory is seen by products and bulk copies that are ordered after it. */
DEVICE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* --- registers ------------------------------------------------------------------------------------------------------------------ */

template <int N> DEVICE void registers_take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> DEVICE void registers_give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }

/* --- products: of all 128 threads, asynchronous. Between open and wait nobody touches what they read or write --------------------- */

/* Of 8 rows or steps to the next 8 are 1024 bytes, whichever way the tile is read. */
typedef uint32_t Operand; /* the lower half of a descriptor */
DEVICE Operand operand_of(const void *tile) { return shared_address(tile) >> 4 | 64 << 16; }
DEVICE Operand operand_at(Operand tile, int bytes) { return tile + (bytes >> 4); }
DEVICE uint64_t descriptor_of(Operand o) { return (uint64_t)(64 | 1 << 30) << 32 | o; }

DEVICE void products_open() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Until at most N groups of this warpgroup's are on their way. */
template <int N> DEVICE void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
/* So that the compiler moves no use of x across. */
template <int N> DEVICE void products_hold(float (&x)[N][4]) {
#pragma unroll
  for (int j = 0; j < N; j++)
#pragma unroll
    for (int i = 0; i < 4; i++) asm volatile("" : "+f"(x[j][i])::"memory");
}

#define FOUR(x, j)     "+f"(x[j][0]), "+f"(x[j][1]), "+f"(x[j][2]), "+f"(x[j][3])
#define SIXTEEN(x, j)  FOUR(x, j), FOUR(x, j + 1), FOUR(x, j + 2), FOUR(x, j + 3)
#define NAMES_32                                                                                                                       \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
#define NAMES_64                                                                                                                       \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"             \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define PRODUCT(shape, type) "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " "

/* d[64][128] or d[64][64] (+)= a[64][16] b, both K-major. Of d as of mma's results: d[j] has columns 8 j + 2t, + 1 of rows g and g + 8. */
template <class T> DEVICE void product_rows(float (&d)[16][4], Operand a, Operand b, bool add) {
#define BODY(type)                                                                                                                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n" PRODUCT("m64n128k16", type) NAMES_64 ", %64, %65, p, 1, 1, 0, 0;\n}"         \
               : SIXTEEN(d, 0), SIXTEEN(d, 4), SIXTEEN(d, 8), SIXTEEN(d, 12)                                                           \
               : "l"(descriptor_of(a)), "l"(descriptor_of(b)), "r"((int)add))
  if constexpr (Wide<T>::BF16) BODY("bf16");
  else BODY("f16");
#undef BODY
}
/* d[64][64] (+)= a[64][16] b[16][64]. */
template <class T, int TRANSPOSED> DEVICE void product_64(float (&d)[8][4], Operand a, Operand b, bool add) {
#define BODY(type)                                                                                                                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n" PRODUCT("m64n64k16", type) NAMES_32 ", %32, %33, p, 1, 1, %35, %35;\n}"      \
               : SIXTEEN(d, 0), SIXTEEN(d, 4)                                                                                          \
               : "l"(descriptor_of(a)), "l"(descriptor_of(b)), "r"((int)add), "n"(TRANSPOSED))
  if constexpr (Wide<T>::BF16) BODY("bf16");
  else BODY("f16");
#undef BODY
}
template <class T> DEVICE void product_rows(float (&d)[8][4], Operand a, Operand b, bool add) { product_64<T, 0>(d, a, b, add); }
/* Both transposed. */
template <class T> DEVICE void product_64_transposed(float (&d)[8][4], Operand a, Operand b, bool add) { product_64<T, 1>(d, a, b, add); }
/* d[64][64] += a[64][16] b[16][64], a in registers as mma takes it, b transposed. */
template <class T> DEVICE void product_64_held(float (&d)[8][4], const uint32_t (&a)[4], Operand b) {
#define BODY(type)                                                                                                                     \
  asm volatile(PRODUCT("m64n64k16", type) NAMES_32 ", {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"                                              \
               : SIXTEEN(d, 0), SIXTEEN(d, 4)                                                                                          \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor_of(b)))
  if constexpr (Wide<T>::BF16) BODY("bf16");
  else BODY("f16");
#undef BODY
}

/* --- tiles from device to shared memory, by one thread, asynchronous ------------------------------------------------------------------ */

/* Of a tensor [samples][rows][cols] of 16-bit elements, rows ld elements apart: what a tile of 64 columns and `high` rows is copied by. */
typedef CUtensorMap TileMap;
/* 0 or an error. The driver's function is looked up by the runtime, for no driver is linked. */
static inline int tile_map_of(TileMap *map, const void *x, bool is_bf16, int64_t ld, int64_t cols, int64_t rows, int64_t samples, int high) {
  typedef CUresult Encode(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                          const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static void *encode; /* the same, whoever finds it first */
  const cuuint64_t sizes[3] = {(cuuint64_t)cols, (cuuint64_t)rows, (cuuint64_t)samples};
  const cuuint64_t strides[2] = {2 * (cuuint64_t)ld, 2 * (cuuint64_t)(ld * rows)};
  const cuuint32_t tile[3] = {TILE_WIDTH, (cuuint32_t)high, 1}, steps[3] = {1, 1, 1};
  if (encode == NULL) {
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    int failed = (int)cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found);
#else
    int failed = (int)cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &encode, cudaEnableDefault, &found);
#endif
    if (failed || encode == NULL) return failed ? failed : (int)cudaErrorSymbolNotFound;
  }
  return (int)((Encode *)encode)(map, is_bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, (void *)x, sizes, strides, tile,
                                 steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* An arrival, as soon as so many bytes of tiles have come, which are asked for after it. */
DEVICE void mbarrier_expect(uint64_t *b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
/* Its first element is [sample][row][col]; what lies beyond a sample's rows is zeros. The map: of a kernel's arguments. */
DEVICE void tile_load(void *to, const TileMap &map, int col, int row, int sample, uint64_t *full) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
                   shared_address(to)),
               "l"(&map), "r"(col), "r"(row), "r"(sample), "r"(shared_address(full))
               : "memory");
}

/* --- bulk copies from shared to device memory, by one thread: multiples of 16 bytes, asynchronous ---------------------------------- */

DEVICE void bulk_store(void *to, const void *from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)), "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
/* to += from, f32 */
DEVICE void bulk_add(float *to, const float *from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
}
DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
DEVICE void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); } /* shared memory may change */
DEVICE void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }           /* and device memory has it */

/* --- between blocks ------------------------------------------------------------------------------------------------------------- */

/* Until *at is `value`; then what was written before it was released is seen, by bulk copies too. */
DEVICE void await_value(const uint32_t *at, uint32_t value) {
  uint32_t now;
  do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(__cvta_generic_to_global(at)) : "memory");
  while (now != value);
  asm volatile("fence.proxy.async.global;" ::: "memory");
}
/* After bulk_wait. */
DEVICE void release_value(uint32_t *at, uint32_t value) {
  asm volatile("fence.proxy.async.global;\nst.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "r"(value) : "memory");
}
DEVICE uint32_t take_number(uint32_t *next) { return atomicAdd(next, 1u); }
#endif

/* --- on either side of the emulation ------------------------------------------------------------------------------------------------ */

/* Which of N takes its turn, and the parity of its barriers' phase. */
template <int N> struct Ring {
  int at = 0, parity = 0;
  DEVICE void next() {
    if (++at == N) at = 0, parity ^= 1;
  }
};

/* Of the whole warp. */
DEVICE void warp_arrives(uint64_t *b) {
  __syncwarp();
  if (threadIdx.x % WARP == 0) mbarrier_arrive(b);
}

/* Blocks that run at a time, as these take all that one has. */
static inline int hopper_multiprocessors(int *count) {
#ifdef FSDPC_SHIM
  *count = 3;
  return 0;
#else
  int device;
  int failed = (int)cudaGetDevice(&device);
  return failed ? failed : (int)cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
#endif
}

#endif
