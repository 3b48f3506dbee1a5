/* Owns: the names of kernels/cuda/hopper.cuh for the CPU. What is asynchronous comes to be at once or when it is waited for, as it
 * happens, thread by thread; what is left unwaited ends the program with a message. Not seen: a missing fence_async_shared. */
#ifndef FSDPC_TESTS_CUDA_SHIM_HOPPER_H
#define FSDPC_TESTS_CUDA_SHIM_HOPPER_H

#define DYNAMIC_TILES(name)                DYNAMIC_SHARED(name)
#define SHIM_SHARED_HOPPER_BYTES           (227 * 1024)
#define ALLOW_SHARED_HOPPER(kernel, bytes) shim_allow((kernel), (size_t)(bytes), SHIM_SHARED_HOPPER_BYTES)

uint32_t shared_address(const void *p);

/* --- barriers ------------------------------------------------------------------------------------------------------ */

void mbarrier_init(uint64_t *b, int arrivals);
static inline void mbarriers_ready() {}
void mbarrier_arrive(uint64_t *b);
void mbarrier_wait(uint64_t *b, int parity);
void named_barrier(int id, int threads);
void named_arrive(int id, int threads);
static inline void fence_async_shared() {}

template <int N> static void registers_take() { static_assert(N % 8 == 0 && N >= 24 && N <= 256, "as setmaxnreg takes it"); }
template <int N> static void registers_give() { static_assert(N % 8 == 0 && N >= 24 && N <= 256, "as setmaxnreg takes it"); }

/* --- products ------------------------------------------------------------------------------------------------------ */

typedef const unsigned char *Operand;
Operand operand_of(const void *tile);
static inline Operand operand_at(Operand tile, int bytes) { return tile + bytes; }

static inline void products_open() {}
void products_commit();
void shim_products_wait(int left);
template <int N> static void products_wait() { shim_products_wait(N); }
template <int N> static void products_hold(float (&)[N][4]) {}

/* A thread's part of a product. */
struct ShimProduct {
  float (*d)[4];
  int tiles; /* of d, 8 columns each */
  bool bf16, transposed, add, held;
  Operand a, b;
  float rows[16][2]; /* of a, when held: elements along k of g and g + 8 of the warp's */
  int group;
};
void shim_product(ShimProduct &&p);
static inline bool shim_is_bf16(__nv_bfloat16) { return true; }
static inline bool shim_is_bf16(__half) { return false; }

template <class T, int N> static void product_rows(float (&d)[N][4], Operand a, Operand b, bool add) {
  shim_product(ShimProduct{d, N, shim_is_bf16(T{}), false, add, false, a, b, {}, 0});
}
template <class T> static void product_64_transposed(float (&d)[8][4], Operand a, Operand b, bool add) {
  shim_product(ShimProduct{d, 8, shim_is_bf16(T{}), true, add, false, a, b, {}, 0});
}
template <class T> static void product_64_held(float (&d)[8][4], const uint32_t (&a)[4], Operand b) {
  ShimProduct p = {d, 8, shim_is_bf16(T{}), true, true, true, NULL, b, {}, 0};
  ShimExchange all = shim_exchange(a);
  if (all.lanes != 0xffffffffu) shim_fail("a product without a whole warp");
  for (int i = 0; i < 2; i++) {
    float row[16];
    shim_sixteen<T>(all, shim_lane() / 4, i, 2, row);
    for (int k = 0; k < 16; k++) p.rows[k][i] = row[k];
  }
  shim_product((ShimProduct &&)p);
}

/* --- tiles ----------------------------------------------------------------------------------------------------------- */

struct TileMap {
  const unsigned char *x;
  int64_t ld, cols, rows, samples; /* elements */
  int high;
};
int tile_map_of(TileMap *map, const void *x, bool is_bf16, int64_t ld, int64_t cols, int64_t rows, int64_t samples, int high);
void mbarrier_expect(uint64_t *b, int bytes);
void tile_load(void *to, const TileMap &map, int col, int row, int sample, uint64_t *full);

/* --- bulk copies --------------------------------------------------------------------------------------------------- */

void bulk_store(void *to, const void *from, int bytes);
void bulk_add(float *to, const float *from, int bytes);
void bulk_commit();
void bulk_wait_read();
void bulk_wait();

/* --- between blocks: only of those that ran before ------------------------------------------------------------------- */

void await_value(const uint32_t *at, uint32_t value);
void release_value(uint32_t *at, uint32_t value);
static inline uint32_t take_number(uint32_t *next) { return (*next)++; }

#endif
