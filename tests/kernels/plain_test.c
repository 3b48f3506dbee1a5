/* Owns: every kernel of kernels.def against its formula, summed by plain loops in double that share no code with it, on both
 * sides of every size at which kernels/cpu goes another way: vectors (4, 8, 16 lanes, and 2, 4, 8 of them), blocks, tiles, tasks.
 *
 * A kernel that is wrong in the same way in every variant, the one in double included, shows here alone. */
#include "tests/kernels/plain.h"
#include <string.h>

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* --- linear layers ------------------------------------------------------------------------------------------------ */

typedef struct Layer {
  int64_t rows, out, in;
  Mat x, w, b, dy;
  Sum *y[2], *dx, *dw, *db; /* y: without and with the bias */
} Layer;

static void sum_row(Layer *l, int64_t r) {
  Sum *dx = l->dx + r * l->in;
  for (int64_t o = 0; o < l->out; o++) {
    const float *x = l->x.x + r * l->x.ld, *w = l->w.x + o * l->in;
    double sum = 0, dy = (double)plain_at(l->dy, r, o);
    Sum *dw = l->dw + o * l->in;
    for (int64_t i = 0; i < l->in; i++) {
      sum += (double)x[i] * (double)w[i];
      dx[i].value += dy * (double)w[i];
      dw[i].value += dy * (double)x[i];
    }
    l->db[o].value += dy;
    l->y[0][r * l->out + o].value = sum;
    l->y[1][r * l->out + o].value = sum + (double)l->b.x[o];
  }
}

static Layer open_layer(int64_t rows, int64_t out, int64_t in) {
  Layer l = {.rows = rows, .out = out, .in = in};
  l.x = plain_input(rows, in), l.w = plain_dense(out, in), l.b = plain_dense(1, out), l.dy = plain_input(rows, out);
  l.y[0] = plain_sums(rows * out), l.y[1] = plain_sums(rows * out);
  l.dx = plain_sums(rows * in), l.dw = plain_sums(out * in), l.db = plain_sums(out);
  for (int64_t r = 0; r < rows; r++) sum_row(&l, r);
  return l;
}

static void check_layer(const Layer *l, const Mode *m, int add) {
  const KernelContext *k = &m->a.context;
  FloatType type = m->a.type;
  Mat y = plain_output(l->rows, l->out, 0), dx = plain_output(l->rows, l->in, add);
  m->t->linear_fwd(k, l->rows, l->out, l->in, l->x.x, l->x.ld, l->w.x, add ? l->b.x : NULL, y.x, y.ld);
  plain_check(m, "y", type, y, 0, l->y[add], EXACT);
  m->t->linear_bwd_x(k, l->rows, l->out, l->in, l->dy.x, l->dy.ld, l->w.x, dx.x, dx.ld, add);
  plain_check(m, "dx", type, dx, add, l->dx, EXACT);
  Mat dw = plain_output_dense(l->out, l->in, add), db = plain_output_dense(1, l->out, !add);
  void *lent_w = plain_lend(m, dw), *lent_b = plain_lend(m, db);
  m->t->linear_bwd_w(k, l->rows, l->out, l->in, l->x.x, l->x.ld, l->dy.x, l->dy.ld, lent_w, lent_b, add, !add);
  plain_read(m, dw, lent_w), plain_read(m, db, lent_b);
  plain_check(m, "dw", k->gradient, dw, add, l->dw, EXACT);
  plain_check(m, "db", k->gradient, db, !add, l->db, EXACT);
}

static void check_weights_alone(const Layer *l, const Mode *m) {
  Mat dw = plain_output_dense(l->out, l->in, 0);
  void *lent = plain_lend(m, dw);
  m->t->linear_bwd_w(&m->a.context, l->rows, l->out, l->in, l->x.x, l->x.ld, l->dy.x, l->dy.ld, lent, NULL, 0, 0);
  plain_read(m, dw, lent);
  plain_check(m, "dw alone", m->a.context.gradient, dw, 0, l->dw, EXACT);
}

/* Large ones with one choice of what is added to, which differs from mode to mode. */
static void linear_case(int64_t rows, int64_t out, int64_t in) {
  Layer l = open_layer(rows, out, in);
  NOW("linear of %d rows, %d from %d", (int)rows, (int)out, (int)in);
  for (int i = 0; i < mode_count; i++) {
    int add = (int)(rows + out + in + i) % 2;
    check_layer(&l, &MODES[i], add);
    if (rows * out * in > 400000) continue;
    check_layer(&l, &MODES[i], !add);
    check_weights_alone(&l, &MODES[i]);
  }
  memory_free();
}

static void test_linear(void **unused) {
  (void)unused;
  static const int64_t rows[] = {1, 2, 8, 31, 32, 130, 260}, outs[] = {1, 130, 256, 257, 520, 1030};
  static const int64_t ins[] = {1, 96, 127, 128, 200, 515, 1030};
  enum { MOST_PRODUCTS = 3000000 };
  for (int r = 0; r < COUNT(rows); r++)
    for (int o = 0; o < COUNT(outs); o++)
      for (int i = 0; i < COUNT(ins) && rows[r] * outs[o] * ins[i] <= MOST_PRODUCTS; i++) linear_case(rows[r], outs[o], ins[i]);
  linear_case(0, 20, 10), linear_case(0, 140, 1030); /* weights' gradients are zero */
  linear_case(260, 257, 130), linear_case(200, 600, 140); /* deep panels of several tiles */
  linear_case(520, 6150, 2); /* more tiles than are evened out */
  linear_case(520, 60, 200); /* several tiles of many rows */
  linear_case(30, 17, 3000); /* many panels deep */
  linear_case(3000, 17, 30);
}

/* --- norms -------------------------------------------------------------------------------------------------------- */

typedef struct Norm {
  int64_t rows, d;
  int layer; /* else by root mean square */
  Mat x, w, b, dy, mean_in, rstd_in;
  Sum *mean, *rstd, *y[2], *dx, *dw, *db;
} Norm;

static const double EPS = 1e-5;

static void norm_statistics(Norm *n, int64_t r) {
  double sum = 0, squares = 0, magnitude = 0;
  for (int64_t j = 0; j < n->d; j++) sum += (double)plain_at(n->x, r, j), magnitude += fabs((double)plain_at(n->x, r, j));
  double mean = n->layer ? sum / (double)n->d : 0;
  for (int64_t j = 0; j < n->d; j++) squares += pow((double)plain_at(n->x, r, j) - mean, 2);
  double rstd = 1 / sqrt(squares / (double)n->d + EPS);
  n->mean[r] = (Sum){mean, magnitude / (double)n->d}, n->rstd[r] = (Sum){rstd, rstd};
  n->mean_in.x[r] = (float)mean, n->rstd_in.x[r] = (float)rstd;
  for (int64_t j = 0; j < n->d; j++) {
    double scale = rstd * (double)n->w.x[j], x = (double)plain_at(n->x, r, j);
    Sum y = {(x - mean) * scale, (fabs(x) + fabs(mean)) * fabs(scale)};
    n->y[0][r * n->d + j] = y;
    plain_add(&y, (double)n->b.x[j]);
    n->y[1][r * n->d + j] = y;
  }
}

/* xhat of the statistics as they are handed in. */
static Sum normed(const Norm *n, int64_t r, int64_t j) {
  double x = (double)plain_at(n->x, r, j), mean = (double)n->mean_in.x[r], rstd = (double)n->rstd_in.x[r];
  return (Sum){(x - mean) * rstd, (fabs(x) + fabs(mean)) * rstd};
}

static void norm_gradients(Norm *n, int64_t r) {
  Sum mean_g = {0, 0}, mean_gx = {0, 0};
  for (int64_t j = 0; j < n->d; j++) {
    double dy = (double)plain_at(n->dy, r, j), g = dy * (double)n->w.x[j];
    Sum xhat = normed(n, r, j);
    plain_add(&mean_g, n->layer ? g / (double)n->d : 0);
    mean_gx.value += g * xhat.value / (double)n->d, mean_gx.size += fabs(g) * xhat.size / (double)n->d;
    n->dw[j].value += dy * xhat.value, n->dw[j].size += fabs(dy) * xhat.size;
    plain_add(&n->db[j], dy);
  }
  for (int64_t j = 0; j < n->d; j++) {
    double g = (double)plain_at(n->dy, r, j) * (double)n->w.x[j], rstd = (double)n->rstd_in.x[r];
    Sum xhat = normed(n, r, j);
    n->dx[r * n->d + j] = (Sum){rstd * (g - mean_g.value - xhat.value * mean_gx.value),
                                rstd * (fabs(g) + mean_g.size + xhat.size * mean_gx.size)};
  }
}

static Norm open_norm(int layer, int64_t rows, int64_t d, int padded) {
  Norm n = {.rows = rows, .d = d, .layer = layer, .w = plain_dense(1, d), .b = plain_dense(1, d)};
  n.x = padded ? plain_input(rows, d) : plain_dense(rows, d), n.dy = padded ? plain_input(rows, d) : plain_dense(rows, d);
  n.mean_in = plain_dense(1, rows), n.rstd_in = plain_dense(1, rows);
  n.mean = plain_sums(rows), n.rstd = plain_sums(rows), n.y[0] = plain_sums(rows * d), n.y[1] = plain_sums(rows * d);
  n.dx = plain_sums(rows * d), n.dw = plain_sums(d), n.db = plain_sums(d);
  for (int64_t r = 0; r < rows; r++) norm_statistics(&n, r), norm_gradients(&n, r);
  return n;
}

static void check_norm_forward(const Norm *n, const Mode *m, int biased) {
  const KernelContext *k = &m->a.context;
  Mat y = plain_output(n->rows, n->d, 0), mean = plain_output_dense(1, n->rows, 0), rstd = plain_output_dense(1, n->rows, 0);
  if (n->layer) {
    m->t->layernorm_fwd(k, n->rows, n->d, EPS, n->x.x, n->x.ld, n->w.x, biased ? n->b.x : NULL, y.x, y.ld, mean.x, rstd.x);
    plain_check(m, "mean", FLOAT_REAL, mean, 0, n->mean, FLOAT_ERROR);
  } else {
    m->t->rmsnorm_fwd(k, n->rows, n->d, EPS, n->x.x, n->x.ld, n->w.x, y.x, y.ld, rstd.x);
  }
  plain_check(m, "rstd", FLOAT_REAL, rstd, 0, n->rstd, FLOAT_ERROR);
  plain_check(m, "y", m->a.type, y, 0, n->y[n->layer && biased], FLOAT_ERROR);
}

static void check_norm_backward(const Norm *n, const Mode *m, int add, int biased) {
  const KernelContext *k = &m->a.context;
  Mat dx = plain_output(n->rows, n->d, add), dw = plain_output_dense(1, n->d, !add), db = {0};
  if (n->layer && biased) db = plain_output_dense(1, n->d, add);
  void *lent_w = plain_lend(m, dw), *lent_b = plain_lend(m, db);
  if (n->layer)
    m->t->layernorm_bwd(k, n->rows, n->d, n->x.x, n->x.ld, n->w.x, n->mean_in.x, n->rstd_in.x, n->dy.x, n->dy.ld, dx.x, dx.ld,
                        lent_w, lent_b, add, !add, add);
  else
    m->t->rmsnorm_bwd(k, n->rows, n->d, n->x.x, n->x.ld, n->w.x, n->rstd_in.x, n->dy.x, n->dy.ld, dx.x, dx.ld, lent_w, add, !add);
  plain_read(m, dw, lent_w), plain_read(m, db, lent_b);
  plain_check(m, "dx", m->a.type, dx, add, n->dx, FLOAT_ERROR);
  plain_check(m, "dw", k->gradient, dw, !add, n->dw, FLOAT_ERROR);
  if (db.x) plain_check(m, "db", k->gradient, db, add, n->db, EXACT);
}

static void norm_case(int64_t rows, int64_t d, int padded) {
  for (int layer = 0; layer < 2; layer++) {
    Norm n = open_norm(layer, rows, d, padded);
    NOW("%s of %d x %d", layer ? "layernorm" : "rmsnorm", (int)rows, (int)d);
    for (int i = 0; i < mode_count; i++)
      for (int option = 0; option < 4; option++) {
        if (rows * d > 50000 && option != i % 4) continue;
        check_norm_forward(&n, &MODES[i], option / 2);
        check_norm_backward(&n, &MODES[i], option % 2, option / 2);
      }
    memory_free();
  }
}

static void test_norms(void **unused) {
  (void)unused;
  static const int64_t ds[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 300};
  for (int i = 0; i < COUNT(ds); i++) norm_case(5, ds[i], 1);
  static const int64_t rows[] = {0, 1, 2, 63, 64, 65, 129};
  for (int i = 0; i < COUNT(rows); i++) norm_case(rows[i], 21, 1), norm_case(rows[i], 300, 1);
  norm_case(3, 33000, 1); /* a row is more than a task */
  norm_case(700, 64, 0);  /* norms of each head: many short rows, side by side */
}

/* --- rotary positions --------------------------------------------------------------------------------------------- */

/* As Hugging Face says it: by wavelengths. */
static double angle_of(const RopeShape *s, int64_t pair) {
  double f = pow(s->theta, -2.0 * (double)pair / (double)s->dims), wavelength = 2 * acos(-1) / f;
  if (!s->llama3 || wavelength < (double)s->original / s->high) return f;
  if (wavelength > (double)s->original / s->low) return f / s->factor;
  double smooth = ((double)s->original / wavelength - s->low) / (s->high - s->low);
  return (1 - smooth) * f / s->factor + smooth * f;
}

static void turn_head(const RopeShape *s, int64_t position, int backward, const float *x, Sum *y) {
  int64_t half = s->dims / 2;
  for (int64_t i = 0; i < half; i++) {
    double angle = angle_of(s, i) * (double)position * (backward ? -1 : 1), a = (double)x[i], b = (double)x[half + i];
    plain_add(&y[i], a * cos(angle)), plain_add(&y[i], -b * sin(angle));
    plain_add(&y[half + i], b * cos(angle)), plain_add(&y[half + i], a * sin(angle));
  }
  for (int64_t i = s->dims; i < s->head_dim; i++) plain_add(&y[i], (double)x[i]);
}

static void rope_case(RopeShape s) {
  int64_t rows = s.batch * s.seq, cols = s.heads * s.head_dim;
  NOW("rope of %d x %d x %d, %d of %d turning, llama3 %d", (int)s.batch, (int)s.seq, (int)s.heads, (int)s.dims, (int)s.head_dim, s.llama3);
  for (int backward = 0; backward < 2; backward++) {
    Mat x = plain_input(rows, cols);
    Sum *want = plain_sums(rows * cols);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t h = 0; h < s.heads; h++)
        turn_head(&s, s.first + r % s.seq, backward, x.x + r * x.ld + h * s.head_dim, want + r * cols + h * s.head_dim);
    for (int i = 0; i < mode_count; i++)
      for (int add = 0; add < 2; add++) {
        Mat y = plain_output(rows, cols, add);
        MODES[i].t->rope(&MODES[i].a.context, &s, backward, x.x, x.ld, y.x, y.ld, add);
        plain_check(&MODES[i], backward ? "dx" : "y", MODES[i].a.type, y, add, want, FLOAT_ERROR);
      }
    memory_free();
  }
}

static void test_rope(void **unused) {
  (void)unused;
  static const int64_t dims[] = {2, 6, 8, 10, 14, 16, 18, 30, 32, 34, 64, 66}, seqs[] = {1, 15, 16, 17, 33};
  for (int i = 0; i < COUNT(dims); i++)
    for (int kept = 0; kept < 18; kept += 17 - i % 3)
      rope_case((RopeShape){2, 3, 2, (dims[i] + kept + 1) / 2 * 2, dims[i], i % 2, 8192, 10000, 8, 1, 4, i % 3});
  for (int i = 0; i < COUNT(seqs); i++) rope_case((RopeShape){1 + i % 3, seqs[i], 1 + i % 2, 22, 22, i % 2, 8192, 500000, 8, 1, 4, 7 * i});
  for (int64_t wide = 254; wide <= 258; wide += 2) rope_case((RopeShape){2, 3, 2, wide, wide, 1, 8192, 10000, 8, 1, 4, 0});
  rope_case((RopeShape){2, 17, 1, 600, 520, 0, 8192, 10000, 8, 1, 4, 1000});
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

typedef struct Attention {
  AttentionShape s;
  Mat q, key, v, d_o, lse_in; /* lse_in: what forward should give */
  double *p;                  /* [batch, heads, tq, tk] */
  Sum *o, *lse;
} Attention;

static int64_t keys_seen(const AttentionShape *s, int64_t t) {
  int64_t seen = s->causal ? t + (s->tk - s->tq) + 1 : s->tk;
  return seen < 0 ? 0 : least(seen, s->tk);
}

/* One query of one head, or a key of its kv head: a row of head_dim elements. */
typedef struct Place {
  int64_t b, h, t;
} Place;

static const float *query_row(const Attention *a, Mat m, Place at) {
  return m.x + (at.b * a->s.tq + at.t) * m.ld + at.h * a->s.head_dim;
}

static int64_t key_offset(const AttentionShape *s, int64_t ld, Place at, int64_t j) {
  return (at.b * s->tk + j) * ld + at.h / (s->heads / s->kv_heads) * s->head_dim;
}

static double dot(const float *x, const float *y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)y[i];
  return sum;
}

static void attend(Attention *a, Place at) {
  const AttentionShape *s = &a->s;
  int64_t seen = keys_seen(s, at.t), row = (at.b * s->heads + at.h) * s->tq + at.t;
  double *p = a->p + row * s->tk, top = -INFINITY, sum = 0;
  Sum *o = a->o + (at.b * s->tq + at.t) * s->heads * s->head_dim + at.h * s->head_dim;
  for (int64_t j = 0; j < seen; j++) {
    p[j] = s->scale * dot(query_row(a, a->q, at), a->key.x + key_offset(s, a->key.ld, at, j), s->head_dim);
    top = fmax(top, p[j]);
  }
  for (int64_t j = 0; j < seen; j++) p[j] = exp(p[j] - top), sum += p[j];
  for (int64_t j = 0; j < seen; j++) {
    p[j] /= sum;
    const float *v = a->v.x + key_offset(s, a->v.ld, at, j);
    for (int64_t i = 0; i < s->head_dim; i++) plain_add(&o[i], p[j] * (double)v[i]);
  }
  a->lse[row] = (Sum){top + log(sum), 10};
  if (seen == 0) a->lse[row] = (Sum){-INFINITY, 0};
  a->lse_in.x[row] = (float)a->lse[row].value;
}

typedef struct AttentionGradients {
  Mat o; /* as it is handed in: rounded */
  Sum *dq, *dk, *dv;
} AttentionGradients;

static void attend_back(const Attention *a, AttentionGradients *g, Place at) {
  const AttentionShape *s = &a->s;
  int64_t d = s->head_dim, kd = s->kv_heads * d;
  const double *p = a->p + ((at.b * s->heads + at.h) * s->tq + at.t) * s->tk;
  const float *d_o = query_row(a, a->d_o, at), *o = query_row(a, g->o, at), *q = query_row(a, a->q, at);
  double whole = dot(d_o, o, d), whole_size = 0;
  for (int64_t i = 0; i < d; i++) whole_size += fabs((double)d_o[i] * (double)o[i]);
  Sum *dq = g->dq + (at.b * s->tq + at.t) * s->heads * d + at.h * d;
  for (int64_t j = 0; j < keys_seen(s, at.t); j++) {
    const float *key = a->key.x + key_offset(s, a->key.ld, at, j), *v = a->v.x + key_offset(s, a->v.ld, at, j);
    double dp = dot(d_o, v, d), size = whole_size;
    Sum *dk = g->dk + key_offset(s, kd, at, j), *dv = g->dv + key_offset(s, kd, at, j);
    for (int64_t i = 0; i < d; i++) size += fabs((double)d_o[i] * (double)v[i]);
    Sum ds = {p[j] * (dp - whole) * s->scale, p[j] * size * s->scale};
    for (int64_t i = 0; i < d; i++) {
      plain_add(&dv[i], p[j] * (double)d_o[i]);
      dk[i].value += ds.value * (double)q[i], dk[i].size += ds.size * fabs((double)q[i]);
      dq[i].value += ds.value * (double)key[i], dq[i].size += ds.size * fabs((double)key[i]);
    }
  }
}

static AttentionGradients gradients_of(const Attention *a, FloatType type) {
  const AttentionShape *s = &a->s;
  int64_t rows = s->batch * s->tq, keys = s->batch * s->tk, qd = s->heads * s->head_dim, kd = s->kv_heads * s->head_dim;
  AttentionGradients g = {plain_output(rows, qd, 0), plain_sums(rows * qd), plain_sums(keys * kd), plain_sums(keys * kd)};
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < qd; j++) g.o.x[r * g.o.ld + j] = plain_round(type, a->o[r * qd + j].value);
  for (int64_t row = 0; row < rows * s->heads; row++)
    attend_back(a, &g, (Place){row / s->heads / s->tq, row % s->heads, row / s->heads % s->tq});
  return g;
}

/* q, k and v side by side where there are as many of each, as a layer makes them. */
static Attention open_attention(AttentionShape s) {
  int64_t rows = s.batch * s.tq, keys = s.batch * s.tk, qd = s.heads * s.head_dim, kd = s.kv_heads * s.head_dim;
  s.scale = 1 / sqrt((double)s.head_dim);
  Attention a = {.s = s, .q = plain_input(rows, qd + 2 * kd), .key = plain_input(keys, kd), .v = plain_input(keys, kd)};
  if (s.tq == s.tk) a.key = a.v = a.q, a.key.x += qd, a.v.x += qd + kd;
  a.d_o = plain_input(rows, qd), a.lse_in = plain_dense(s.batch * s.heads, s.tq);
  a.p = memory_get((size_t)(rows * s.heads * s.tk) * sizeof(double));
  a.o = plain_sums(rows * qd), a.lse = plain_sums(rows * s.heads);
  for (int64_t row = 0; row < rows * s.heads; row++)
    attend(&a, (Place){row / s.heads / s.tq, row % s.heads, row / s.heads % s.tq});
  return a;
}

static void check_attention(const Attention *a, const AttentionGradients *g, const Mode *m) {
  static const double ERROR = 2e-5;
  const AttentionShape *s = &a->s;
  const KernelContext *k = &m->a.context;
  int64_t rows = s->batch * s->tq, keys = s->batch * s->tk, qd = s->heads * s->head_dim, kd = s->kv_heads * s->head_dim;
  Mat o = plain_output(rows, qd, 0), lse = plain_output_dense(s->batch * s->heads, s->tq, 0);
  m->t->attention_fwd(k, s, a->q.x, a->q.ld, a->key.x, a->key.ld, a->v.x, a->v.ld, o.x, o.ld, lse.x);
  plain_check(m, "o", m->a.type, o, 0, a->o, ERROR);
  plain_check(m, "lse", FLOAT_REAL, lse, 0, a->lse, FLOAT_ERROR);
  for (int add = 0; add < 2; add++) {
    Mat dq = plain_output(rows, qd, add), dk = plain_output(keys, kd, !add), dv = plain_output(keys, kd, add);
    m->t->attention_bwd(k, s, a->q.x, a->q.ld, a->key.x, a->key.ld, a->v.x, a->v.ld, g->o.x, g->o.ld, a->lse_in.x, a->d_o.x,
                        a->d_o.ld, dq.x, dq.ld, add, dk.x, dk.ld, !add, dv.x, dv.ld, add);
    plain_check(m, "dq", m->a.type, dq, add, g->dq, ERROR);
    plain_check(m, "dk", m->a.type, dk, !add, g->dk, ERROR);
    plain_check(m, "dv", m->a.type, dv, add, g->dv, ERROR);
  }
}

static void attention_case(AttentionShape s) {
  Attention a = open_attention(s);
  AttentionGradients of_type[] = {gradients_of(&a, FLOAT_REAL), gradients_of(&a, FLOAT_BF16), gradients_of(&a, FLOAT_F16)};
  NOW("attention of %d x %d to %d, heads %d of %d, %d kv, causal %d", (int)s.batch, (int)s.tq, (int)s.tk, (int)s.heads,
      (int)s.head_dim, (int)s.kv_heads, s.causal);
  for (int i = 0; i < mode_count; i++) check_attention(&a, &of_type[MODES[i].a.type], &MODES[i]);
  memory_free();
}

static void test_attention(void **unused) {
  (void)unused;
  static const int64_t lengths[] = {1, 2, 31, 32, 33, 63, 64, 65, 97, 129, 162};
  static const int64_t dims[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 96, 127, 128, 129, 130, 160};
  static const int64_t crossings[][2] = {{1, 2}, {1, 64}, {1, 65}, {1, 130}, {33, 100}, {40, 41}, {64, 65}, {64, 96}, {65, 64}, {70, 3},
                                         {130, 2}, {100, 33}, {129, 40}, {2, 1}, {66, 130}, {40, 72}, {96, 128}, {128, 100}};
  for (int i = 0; i < COUNT(lengths); i++)
    for (int causal = 0; causal < 2; causal++) attention_case((AttentionShape){1, lengths[i], lengths[i], 2, 1 + i % 2, 5, causal, 0});
  for (int i = 0; i < COUNT(dims); i++)
    attention_case((AttentionShape){1, i % 3 ? 35 : 66, i % 3 ? 35 : 66, 1, 1, dims[i], i % 2, 0});
  for (int i = 0; i < COUNT(crossings); i++)
    for (int causal = 0; causal < 2; causal++)
      attention_case((AttentionShape){1 + i % 2, crossings[i][0], crossings[i][1], 6, i % 3 + 1, 3, causal, 0});
  attention_case((AttentionShape){2, 70, 70, 6, 2, 19, 1, 0});
  attention_case((AttentionShape){1, 35, 67, 1, 1, 256, 1, 0});
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

/* Tokens repeat, and two lie outside of the table: they read as NaN and give nothing back. */
static void embedding_case(int64_t rows, int64_t vocab, int64_t d) {
  Mat table = plain_dense(vocab, d), dy = plain_input(rows, d);
  int32_t *tokens = plain_ids(rows, vocab);
  if (rows > 4) tokens[2] = -1, tokens[4] = (int32_t)vocab;
  Sum *y = plain_sums(rows * d), *dtable = plain_sums(vocab * d);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < d; j++) {
      int outside = tokens[r] < 0 || tokens[r] >= vocab;
      plain_add(&y[r * d + j], outside ? (double)NAN : (double)plain_at(table, tokens[r], j));
      if (!outside) plain_add(&dtable[tokens[r] * d + j], (double)plain_at(dy, r, j));
    }
  NOW("embedding of %d rows, %d x %d", (int)rows, (int)vocab, (int)d);
  for (int i = 0; i < mode_count; i++)
    for (int add = 0; add < 2; add++) {
      const Mode *m = &MODES[i];
      Mat got = plain_output(rows, d, 0), gradient = plain_output_dense(vocab, d, add);
      m->t->embedding_fwd(&m->a.context, rows, vocab, d, tokens, table.x, got.x, got.ld);
      plain_check(m, "y", m->a.type, got, 0, y, EXACT);
      void *lent = plain_lend(m, gradient);
      m->t->embedding_bwd(&m->a.context, rows, vocab, d, tokens, dy.x, dy.ld, lent, add);
      plain_read(m, gradient, lent);
      plain_check(m, "dtable", m->a.context.gradient, gradient, add, dtable, EXACT);
    }
  memory_free();
}

static void test_embedding(void **unused) {
  (void)unused;
  static const int64_t ds[] = {1, 3, 4, 5, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 300};
  for (int i = 0; i < COUNT(ds); i++) embedding_case(1 + 7 * (i % 4), 5, ds[i]);
  embedding_case(150, 3, 30);   /* a token has a third of the rows */
  embedding_case(40, 35, 1003); /* two tasks of rows */
  embedding_case(700, 650, 9);  /* most tokens are far apart */
  embedding_case(2, 3, 33000);
}

/* --- losses ------------------------------------------------------------------------------------------------------- */

/* The loss of one row of logits; they become its gradient, over `count`. A masked logit may be -infinity. */
static Sum cross_entropy_row(const double *logits, int64_t vocab, int64_t target, double count, Sum *gradient) {
  double top = -INFINITY, sum = 0, inverse = count > 0 ? 1 / count : 0;
  for (int64_t j = 0; j < vocab; j++) top = fmax(top, logits[j]);
  for (int64_t j = 0; j < vocab; j++) sum += exp(logits[j] - top);
  for (int64_t j = 0; j < vocab; j++) {
    double p = exp(logits[j] - top) / sum;
    gradient[j] = (Sum){(p - (j == target)) * inverse, (p + (j == target)) * inverse};
  }
  return (Sum){log(sum) + top - logits[target], fabs(top) + fabs(logits[target]) + 1};
}

enum { IGNORED = -100 };

typedef struct Logits {
  int64_t rows, vocab;
  double count;
  Mat x;
  int32_t *targets;
  Sum *gradient, *row_loss, loss;
} Logits;

static Logits open_logits(int64_t rows, int64_t vocab, double count, int outside) {
  Logits l = {rows, vocab, count, plain_input(rows, vocab), plain_ids(rows, vocab), plain_sums(rows * vocab), plain_sums(rows), {3, 3}};
  double *row = memory_get((size_t)vocab * sizeof *row);
  plain_scale(l.x, 8);
  if (rows > 2) l.targets[rows / 2] = IGNORED;
  if (outside) l.targets[rows - 1] = (int32_t)vocab;
  for (int64_t r = 0; r < rows; r++) {
    int64_t target = l.targets[r];
    if (target == IGNORED) continue;
    if (target > 0 && target < vocab) l.x.x[r * l.x.ld] = -INFINITY;
    for (int64_t j = 0; j < vocab; j++) row[j] = (double)plain_at(l.x, r, j), l.gradient[r * vocab + j].value = NAN;
    l.row_loss[r] = target < vocab ? cross_entropy_row(row, vocab, target, count, l.gradient + r * vocab) : (Sum){NAN, 0};
    l.loss.value += l.row_loss[r].value, l.loss.size += l.row_loss[r].size;
  }
  return l;
}

static void cross_entropy_case(int64_t rows, int64_t vocab, double count, int outside) {
  Logits l = open_logits(rows, vocab, count, outside);
  NOW("cross entropy of %d x %d, count %g", (int)rows, (int)vocab, count);
  for (int i = 0; i < mode_count; i++) {
    Mat x = plain_output(rows, vocab, 0), row_loss = plain_output_dense(1, rows, 0);
    for (int64_t r = 0; r < rows; r++) memcpy(x.x + r * x.ld, l.x.x + r * l.x.ld, (size_t)vocab * sizeof(float));
    double loss = 3;
    MODES[i].t->cross_entropy(&MODES[i].a.context, rows, vocab, IGNORED, count, x.x, x.ld, l.targets, &loss, row_loss.x);
    plain_check(&MODES[i], "gradient", MODES[i].a.type, x, 0, l.gradient, FLOAT_ERROR);
    plain_check(&MODES[i], "row_loss", FLOAT_REAL, row_loss, 0, l.row_loss, FLOAT_ERROR);
    plain_check_number(&MODES[i], "loss", loss, l.loss, FLOAT_ERROR);
  }
  memory_free();
}

static void test_cross_entropy(void **unused) {
  (void)unused;
  static const int64_t vocabs[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 2047, 2048, 2049, 2080, 4100, 5003};
  for (int i = 0; i < COUNT(vocabs); i++) cross_entropy_case(1 + i % 5, vocabs[i], i % 5 == 4 ? 0 : 5, i % 7 == 3);
  cross_entropy_case(70, 1003, 69, 0); /* several tasks */
}

/* The layer that makes the logits, and they: rounded to the type of activations, as is their gradient. */
typedef struct Head {
  int64_t rows, vocab, in, chunk;
  double count;
  Mat x, w, b;
  int32_t *targets;
  Sum *logits, *dx, *dw, *db, *row_loss, loss;
} Head;

/* A logit's gradient, and what its error is relative to: once rounded to 16 bits, to itself, or below f16's normal numbers to the least
 * of them. */
static Sum as_stored(FloatType type, Sum gradient) {
  if (type == FLOAT_REAL) return gradient;
  gradient.size = fabs(gradient.value) + gradient.size / 1024 + (type == FLOAT_F16 ? 0x1p-17 : 0);
  return gradient;
}

static void add_times(Sum *sum, Sum x, double by) {
  sum->value += x.value * by;
  sum->size += x.size * fabs(by);
}

static void head_row(Head *h, FloatType type, int biased, int64_t r, double *row) {
  Sum *gradient = h->logits + r * h->vocab;
  if (h->targets[r] == IGNORED) return;
  for (int64_t v = 0; v < h->vocab; v++) {
    double logit = dot(h->x.x + r * h->x.ld, h->w.x + v * h->in, h->in) + (biased ? (double)h->b.x[v] : 0);
    row[v] = (double)plain_round(type, logit);
  }
  h->row_loss[r] = cross_entropy_row(row, h->vocab, h->targets[r], h->count, gradient);
  h->loss.value += h->row_loss[r].value, h->loss.size += h->row_loss[r].size;
  for (int64_t v = 0; v < h->vocab; v++) {
    Sum g = as_stored(type, gradient[v]);
    add_times(&h->db[v], g, 1);
    for (int64_t i = 0; i < h->in; i++) {
      add_times(&h->dx[r * h->in + i], g, (double)h->w.x[v * h->in + i]);
      add_times(&h->dw[v * h->in + i], g, (double)plain_at(h->x, r, i));
    }
  }
}

static Head head_of(Head h, FloatType type, int biased) {
  double *row = memory_get((size_t)h.vocab * sizeof *row);
  h.logits = plain_sums(h.rows * h.vocab), h.row_loss = plain_sums(h.rows), h.loss = (Sum){3, 3};
  h.dx = plain_sums(h.rows * h.in), h.dw = plain_sums(h.vocab * h.in), h.db = plain_sums(h.vocab);
  for (int64_t r = 0; r < h.rows; r++) head_row(&h, type, biased, r, row);
  return h;
}

/* The rows of the last chunk; what another chunk left after them stays. */
static void check_last_chunk(const Head *h, const Mode *m, Mat logits, double error) {
  int64_t first = (h->rows - 1) / h->chunk * h->chunk;
  logits.rows = h->rows - first;
  plain_check(m, "logits", m->a.type, logits, 0, h->logits + first * h->vocab, error);
}

/* with: 0 no gradient of a parameter, 1 of w alone, 2 of w and b. */
static void check_head(const Head *h, const Mode *m, int add, int with) {
  const KernelContext *k = &m->a.context;
  Mat dx = plain_output(h->rows, h->in, add), dw = {0}, db = {0}, row_loss = plain_output_dense(1, h->rows, 0);
  Mat logits = plain_output(h->chunk, h->vocab, 0);
  double loss = 3, rounding = m->a.type == FLOAT_REAL ? 0 : 0x1.01p-8, chunks = ceil((double)h->rows / (double)h->chunk);
  if (with > 0) dw = plain_output_dense(h->vocab, h->in, !add);
  if (with > 1) db = plain_output_dense(1, h->vocab, add);
  void *lent_w = plain_lend(m, dw), *lent_b = plain_lend(m, db);
  m->t->linear_cross_entropy(k, h->rows, h->vocab, h->in, IGNORED, h->chunk, h->count, h->x.x, h->x.ld, h->w.x, with > 1 ? h->b.x : NULL,
                             h->targets, &loss, dx.x, dx.ld, add, lent_w, !add, lent_b, add, row_loss.x, logits.x, logits.ld);
  plain_read(m, dw, lent_w), plain_read(m, db, lent_b);
  plain_check(m, "dx", m->a.type, dx, add, h->dx, FLOAT_ERROR + rounding);
  plain_check(m, "row_loss", FLOAT_REAL, row_loss, 0, h->row_loss, FLOAT_ERROR);
  plain_check_number(m, "loss", loss, h->loss, FLOAT_ERROR);
  check_last_chunk(h, m, logits, FLOAT_ERROR);
  if (k->gradient != FLOAT_REAL) rounding += (chunks - 1) * 0x1.01p-8; /* once a chunk */
  if (with > 0) plain_check(m, "dw", k->gradient, dw, !add, h->dw, FLOAT_ERROR + rounding);
  if (with > 1) plain_check(m, "db", k->gradient, db, add, h->db, FLOAT_ERROR + rounding);
}

static void head_case(int64_t rows, int64_t vocab, int64_t in, int64_t chunk) {
  Head h = {.rows = rows, .vocab = vocab, .in = in, .chunk = chunk, .count = (double)rows, .x = plain_input(rows, in)};
  h.w = plain_dense(vocab, in), h.b = plain_dense(1, vocab), h.targets = plain_ids(rows, vocab);
  if (rows > 2) h.targets[rows / 2] = IGNORED, h.count--;
  for (int biased = 0; biased < 2; biased++) {
    Head of_type[] = {head_of(h, FLOAT_REAL, biased), head_of(h, FLOAT_BF16, biased), head_of(h, FLOAT_F16, biased)};
    NOW("linear cross entropy of %d x %d from %d, chunks of %d, bias %d", (int)rows, (int)vocab, (int)in, (int)chunk, biased);
    for (int i = 0; i < mode_count; i++)
      for (int add = 0; add < 2; add++) check_head(&of_type[MODES[i].a.type], &MODES[i], add, biased ? 2 : add);
  }
  memory_free();
}

static void test_linear_cross_entropy(void **unused) {
  (void)unused;
  head_case(1, 1, 1, 1), head_case(3, 2, 5, 1), head_case(17, 33, 7, 16), head_case(16, 64, 16, 16);
  head_case(37, 303, 20, 16), head_case(37, 300, 20, 64), head_case(33, 2060, 9, 33), head_case(40, 257, 130, 20);
}

static int open_modes(void **unused) {
  (void)unused;
  kernels_thread_init();
  modes_open();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear),
      cmocka_unit_test(test_norms),
      cmocka_unit_test(test_rope),
      cmocka_unit_test(test_attention),
      cmocka_unit_test(test_elementwise),
      cmocka_unit_test(test_silu_mul_bwd),
      cmocka_unit_test(test_broadcast),
      cmocka_unit_test(test_dropout),
      cmocka_unit_test(test_embedding),
      cmocka_unit_test(test_cross_entropy),
      cmocka_unit_test(test_linear_cross_entropy),
      cmocka_unit_test(test_mse),
      cmocka_unit_test(test_sum_squares),
      cmocka_unit_test(test_optimizers),
      cmocka_unit_test(test_adafactor),
      cmocka_unit_test(test_tree_sum),
      cmocka_unit_test(test_narrow),
      cmocka_unit_test(test_init),
  };
  return cmocka_run_group_tests(tests, open_modes, NULL);
}
