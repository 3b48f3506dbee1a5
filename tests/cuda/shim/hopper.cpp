/* Owns: what Hopper's instructions do (hopper.h), a thread at a time. */
#include "tests/cuda/shim/shim.h"

#include <map>
#include <vector>

namespace {

struct Bulk {
  unsigned char *to;
  const unsigned char *from;
  size_t bytes;
  bool add, committed, waited_read;
  bool read, written;
  std::vector<unsigned char> taken; /* read, but not written */
};

/* Of a thread, on its way. */
struct Async {
  std::vector<ShimProduct> products;
  std::vector<Bulk> bulks; /* until bulk_wait */
  int committed, ended;    /* groups of products */
  int open;                /* products since the last group */
  bool late;               /* that group comes to be when it is waited for */
};
Async of_thread[SHIM_MOST_THREADS];
Async &own() { return of_thread[shim_index()]; }

void need_shared(const void *p, size_t bytes, size_t multiple) {
  if (!shim_is_shared(p, bytes)) shim_fail("an asynchronous access beyond shared memory");
  if ((uintptr_t)p % multiple != 0) shim_fail("a misaligned address of shared memory");
}

/* --- barriers: parity of the phase that runs, a mark that one was initialized, arrivals so far, arrivals that end a phase ---------- */

constexpr uint64_t MARK = 0x5afeull << 32, MARK_BITS = 0x7fffffffull << 32, PARITY = 1ull << 63;

void need_barrier(const uint64_t *b) {
  need_shared(b, sizeof *b, sizeof *b);
  if ((*b & MARK_BITS) != MARK) shim_fail("a barrier that nobody initialized");
}
void arrive(uint64_t *b) {
  *b += 1 << 16;
  if ((*b >> 16 & 0xffff) == (*b & 0xffff)) *b = ((*b & ~(0xffffull << 16)) ^ PARITY);
}

/* --- tiles: each comes when it is asked for or when somebody waits for its barrier, as it happens -------------------------------------- */

struct TileLoad {
  unsigned char *to;
  TileMap map;
  int col, row, sample;
};
struct Expected {
  int bytes; /* that have not come; 0: nobody expects any */
  std::vector<TileLoad> late;
};
std::map<const void *, Expected> expected; /* by barrier */

void come(uint64_t *b, Expected &e, const TileLoad &t) {
  for (int r = 0; r < t.map.high; r++)
    for (int piece = 0; piece < 8; piece++)
      for (int i = 0; i < 8; i++) {
        int64_t row = t.row + r, col = t.col + piece * 8 + i;
        unsigned char *to = t.to + r * 128 + (piece ^ r % 8) * 16 + 2 * i;
        if (row < t.map.rows && col < t.map.cols) memcpy(to, t.map.x + 2 * ((t.sample * t.map.rows + row) * t.map.ld + col), 2);
        else memset(to, 0, 2);
      }
  e.bytes -= t.map.high * 128;
  if (e.bytes < 0) shim_fail("more bytes come than a barrier expects");
  if (e.bytes == 0) arrive(b);
}

bool phase_ended(const void *b, uint32_t parity) {
  auto found = expected.find(b);
  if (found != expected.end() && !found->second.late.empty() && shim_chance()) {
    std::vector<TileLoad> late;
    late.swap(found->second.late);
    for (const TileLoad &t : late) come((uint64_t *)b, found->second, t);
  }
  return *(const uint64_t *)b >> 63 != parity;
}

/* --- products ------------------------------------------------------------------------------------------------------ */

/* Where byte `at` of row r lies. The address swizzles: its bits 4 to 6 by 7 to 9. */
const unsigned char *place(Operand o, int r, int at) {
  uintptr_t plain = (uintptr_t)o + (uintptr_t)(r / 8 * 1024 + r % 8 * 128 + at);
  return (const unsigned char *)(plain ^ (plain >> 3 & 0x70));
}

/* Elements as floats. A table, for conversions are most of what a product takes. */
struct Floats {
  float of[2][1 << 16];
  Floats() {
    for (uint32_t x = 0; x < 1 << 16; x++) of[0][x] = shim_half_of(__half{}, x), of[1][x] = shim_half_of(__nv_bfloat16{}, x);
  }
};
const Floats floats;

/* Rows r and r + apart of A, or such columns of B: their kth elements become out[k * stride] and the next. */
void take(const ShimProduct &p, Operand o, int r, int apart, float *out, int stride) {
  const float *of = floats.of[p.bf16];
  uint16_t x[2][8];
  for (int first = 0; first < 16; first += 8) {
    for (int k = 0; p.transposed && k < 8; k++)
      for (int i = 0; i < 2; i++) memcpy(&x[i][k], place(o, first + k, 2 * (r + i * apart)), sizeof x[i][k]);
    for (int i = 0; !p.transposed && i < 2; i++) memcpy(x[i], place(o, r + i * apart, 2 * first), sizeof x[i]);
    for (int k = 0; k < 8; k++)
      for (int i = 0; i < 2; i++) out[(first + k) * stride + i] = of[x[i][k]];
  }
}

template <int TILES> void multiply(const ShimProduct &p) {
  constexpr int COLS = 2 * TILES;
  int lane = shim_lane(), row = shim_index() / 32 % 4 * 16 + lane / 4;
  float rows[16][2], cols[16][COLS], sums[2][COLS] = {};
  if (p.held) memcpy(rows, p.rows, sizeof rows);
  else take(p, p.a, row, 8, rows[0], 2);
  for (int j = 0; j < TILES; j++) take(p, p.b, 8 * j + lane % 4 * 2, 1, cols[0] + 2 * j, COLS);
  for (int k = 0; k < 16; k++)
    for (int i = 0; i < 2; i++)
      for (int n = 0; n < COLS; n++) sums[i][n] += rows[k][i] * cols[k][n];
  for (int j = 0; j < TILES; j++)
    for (int i = 0; i < 4; i++) p.d[j][i] = (p.add ? p.d[j][i] : 0) + sums[i / 2][2 * j + i % 2];
}

/* Those of groups below `end`: in their order, for they add to the same sums. */
void multiply_until(Async &a, int end) {
  size_t n = 0;
  for (; n < a.products.size() && a.products[n].group < end; n++)
    if (a.products[n].tiles == 16) multiply<16>(a.products[n]);
    else multiply<8>(a.products[n]);
  a.products.erase(a.products.begin(), a.products.begin() + (ptrdiff_t)n);
}

/* --- bulk copies --------------------------------------------------------------------------------------------------- */

void read_now(Bulk &b) {
  if (!b.read) b.taken.assign(b.from, b.from + b.bytes);
  b.read = true;
}

void write_now(Bulk &b) {
  if (b.written) return;
  b.written = true;
  if (!b.add) memcpy(b.to, b.taken.data(), b.bytes);
  for (size_t i = 0; b.add && i < b.bytes; i += sizeof(float)) {
    float x;
    memcpy(&x, b.taken.data() + i, sizeof x);
    *(float *)(b.to + i) += x;
  }
}

void start_bulk(void *to, const void *from, int bytes, bool add) {
  if (bytes <= 0 || bytes % 16 != 0 || (uintptr_t)to % 16 != 0) shim_fail("a misaligned bulk copy");
  need_shared(from, (size_t)bytes, 16);
  Bulk b = {(unsigned char *)to, (const unsigned char *)from, (size_t)bytes, add, false, false, false, false, {}};
  if (shim_chance()) {
    read_now(b);
    if (shim_chance()) write_now(b);
  }
  own().bulks.push_back(b);
}

} // namespace

uint32_t shared_address(const void *p) {
  need_shared(p, 0, 1);
  return (uint32_t)((const unsigned char *)p - (const unsigned char *)shim_dynamic());
}

void mbarrier_init(uint64_t *b, int arrivals) {
  need_shared(b, sizeof *b, sizeof *b);
  if (arrivals < 1 || arrivals > SHIM_MOST_THREADS) shim_fail("a barrier of no arrival, or of more than a block has threads");
  *b = MARK | (uint64_t)arrivals;
}

void mbarrier_arrive(uint64_t *b) {
  need_barrier(b);
  arrive(b);
}

void mbarrier_expect(uint64_t *b, int bytes) {
  need_barrier(b);
  if (expected[b].bytes != 0) shim_fail("a barrier expects tiles twice in a phase");
  expected[b].bytes = bytes;
}

int tile_map_of(TileMap *map, const void *x, bool, int64_t ld, int64_t cols, int64_t rows, int64_t samples, int high) {
  if ((uintptr_t)x % 16 != 0 || ld % 8 != 0 || ld < cols || rows < 1 || samples < 1 || high < 1 || high > 256) return 1;
  *map = TileMap{(const unsigned char *)x, ld, cols, rows, samples, high};
  return 0;
}

void tile_load(void *to, const TileMap &map, int col, int row, int sample, uint64_t *full) {
  need_barrier(full);
  need_shared(to, (size_t)map.high * 128, 1024);
  if (col < 0 || row < 0 || sample < 0 || sample >= map.samples) shim_fail("a tile that there is not");
  TileLoad t = {(unsigned char *)to, map, col, row, sample};
  Expected &e = expected[full];
  if (shim_chance()) come(full, e, t);
  else e.late.push_back(t);
}

void mbarrier_wait(uint64_t *b, int parity) {
  need_barrier(b);
  if (parity != 0 && parity != 1) shim_fail("a parity that is neither 0 nor 1");
  shim_wait_until(phase_ended, b, (uint32_t)parity);
}

Operand operand_of(const void *tile) {
  need_shared(tile, 1024, 1024);
  return (Operand)tile;
}

void products_commit() {
  Async &a = own();
  a.committed++, a.open = 0;
}

void shim_products_wait(int left) {
  Async &a = own();
  if (a.committed - left > a.ended) a.ended = a.committed - left;
  multiply_until(a, a.ended);
}

void shim_product(ShimProduct &&p) {
  Async &a = own();
  size_t last = p.transposed ? 128 : 32; /* of a tile's last row, what is read */
  need_shared(p.b, (size_t)((p.transposed ? 16 : 8 * p.tiles) - 1) * 128 + last, 16);
  if (!p.held) need_shared(p.a, (size_t)((p.transposed ? 16 : 64) - 1) * 128 + last, 16);
  if (a.open++ == 0) a.late = shim_chance();
  p.group = a.committed;
  a.products.push_back(p);
  if (!a.late) multiply_until(a, a.committed + 1);
}

void bulk_store(void *to, const void *from, int bytes) { start_bulk(to, from, bytes, false); }
void bulk_add(float *to, const float *from, int bytes) { start_bulk(to, from, bytes, true); }

void bulk_commit() {
  for (Bulk &b : own().bulks) b.committed = true;
}

void bulk_wait_read() {
  if (shim_chance()) shim_linger(); /* it takes time, in which others go on */
  for (Bulk &b : own().bulks) {
    if (!b.committed) continue;
    b.waited_read = true;
    read_now(b);
    if (shim_chance()) write_now(b);
  }
}

void bulk_wait() {
  if (shim_chance()) shim_linger();
  std::vector<Bulk> left;
  for (Bulk &b : own().bulks)
    if (b.committed) read_now(b), write_now(b);
    else left.push_back(b);
  own().bulks.swap(left);
}

void await_value(const uint32_t *at, uint32_t value) {
  shim_wait_until([](const void *p, uint32_t x) { return *(const uint32_t *)p == x; }, at, value);
}

void release_value(uint32_t *at, uint32_t value) {
  if (!own().bulks.empty()) shim_fail("a value is released while bulk copies may be on their way");
  *at = value;
}

/* Device memory gets what is written late; shared memory is read no more. */
void shim_async_end() {
  Async &a = own();
  if (a.open > 0 || a.ended < a.committed) shim_fail("a thread ends while its products may be on their way");
  for (Bulk &b : a.bulks) {
    if (!b.waited_read) shim_fail("a thread ends while its bulk copies may read shared memory");
    write_now(b);
  }
  a.bulks.clear();
  a.committed = a.ended = 0;
}
