/* Owns: the sweep of `fsdpc tune`: a grid of planning options, one plan a point, what dominates what. */
#ifndef FSDPC_CLI_TUNE_H
#define FSDPC_CLI_TUNE_H

#include "cli/cli.h"

enum { TUNE_DIMS = 9, TUNE_TEXT = 48, TUNE_MOST = 100000 };

/* One option and the values that are tried, as they would stand on the command line. */
typedef struct TuneDim {
  OptionId option;
  Words values;
} TuneDim;

typedef enum { TUNE_UNFINISHED, TUNE_IMPOSSIBLE, TUNE_TOO_LARGE, TUNE_FITS } TuneState;

/* Written by another process: no pointers. */
typedef struct TunePoint {
  TuneState state;
  uint32_t ranks, shard, prefetch;
  uint64_t micro_batch, accumulation, step_ns, lower_bound_ns, exposed_ns, arena_bytes, budget_bytes;
  double samples;         /* a step, all ranks */
  double ns_per_token;    /* of the whole job */
  double usd_per_million; /* tokens; 0: the cluster has no price */
  char strategy[TUNE_TEXT], wrap[TUNE_TEXT], checkpoint[TUNE_TEXT];
  char why[160], help[160]; /* IMPOSSIBLE: the first diagnostic */
} TunePoint;

typedef struct Tune {
  Cli *cli;
  TuneDim dims[TUNE_DIMS]; /* dims[0]: clusters */
  const Graph **graphs;    /* by cluster */
  TunePoint *points;       /* shared between processes */
  uint32_t count;
  /* tune_front: */
  bool priced;           /* cost counts: every cluster has a price */
  int32_t *dominated_by; /* by point: one on the front that is nowhere worse and somewhere better; PLAN_NONE: on the front, or
                            not a candidate */
  int32_t *same_as;      /* by point: an earlier point with the same figures, or PLAN_NONE */
  VEC(uint32_t) front;   /* by ranks, then time */
  double seconds;
  int stopped_by; /* a signal; 0: every point was planned */
} Tune;

/* Whether points offload nothing because nobody asked for it: weighing host memory takes ten times as long. */
bool tune_leaves_host(const Cli *cli, const Graph *graph);
/* Value of dimension d at a point. */
const char *tune_value(const Tune *tune, uint32_t point, int d);
/* The point that differs in dimension d only, value v there. */
uint32_t tune_neighbour(const Tune *tune, uint32_t point, int d, uint32_t v);

/* tune_run.c: plans every point, on all cores, until it is interrupted: points that are not done then stay unfinished, and the code is
 * EXIT_OK. An exit code. */
int tune_run(Tune *tune, int64_t jobs);
/* tune_front.c */
void tune_front(Tune *tune);

/* tune_report.c, tune_html.c */
void tune_print(const Tune *tune, FILE *out);
void tune_json(const Tune *tune, FILE *out);
void tune_csv(const Tune *tune, Text *out);
void tune_html(const Tune *tune, Text *out);
/* Of a sweep in which nothing fits: what is the matter, on stderr, and the exit code. */
int tune_explain(const Tune *tune);
/* "checkpoint none: does not fit, 61.9 GiB": why the neighbour lost against a point; NULL: it did not. */
const char *tune_why_lost(const Tune *tune, uint32_t point, uint32_t neighbour, int d);

#endif
