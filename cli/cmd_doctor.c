/* Owns: `fsdpc doctor`: what this machine has, what is missing and how to get it. */
#include "cli/cli.h"

#include "base/cores.h"
#include "kernels/gemm.h"
#include "runtime/environment.h"
#include "runtime/comm/mpi_lib.h"
#include "runtime/launch/launcher.h"
#if FSDPC_HAVE_CUDA
#include "runtime/cuda/cuda_doctor.h"
#endif
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

/* One finding: what, its value, and what to do when it is missing (NULL: nothing). */
typedef struct Finding {
  const char *group, *name, *value, *help;
} Finding;
typedef VEC(Finding) Findings;

static void add(Arena *arena, Findings *list, const char *group, const char *name, const char *value,
                const char *help) {
  vec_push(arena, list, ((Finding){group, name, value, help}));
}

static void find_versions(Arena *arena, Findings *list) {
  add(arena, list, "versions", "fsdpc", FSDPC_VERSION, NULL);
  add(arena, list, "versions", "plan format", arena_printf(arena, "%d", PLAN_VERSION), NULL);
  add(arena, list, "versions", "compiler", __VERSION__, NULL);
  add(arena, list, "versions", "jansson", JANSSON_VERSION, NULL);
}

static void find_models(const Cli *cli, Findings *list) {
  bool there = access(cli->models, R_OK | X_OK) == 0;
  add(cli->arena, list, "files", "models", there ? cli->models : "missing",
      there ? NULL : arena_printf(cli->arena, "%s cannot be read: FSDPC_MODELS names the folder", cli->models));
}

static const char *cpu_features(Arena *arena) {
#if defined(__x86_64__)
  Text text = {.arena = arena};
  text_printf(&text, "%s", "x86-64");
#define FEATURE(name)                                                                                        \
  if (__builtin_cpu_supports(name)) text_printf(&text, " %s", name);
  FEATURE("avx2")
  FEATURE("fma") FEATURE("avx512f") FEATURE("avx512bf16")
#undef FEATURE
      return text.data;
#else
  (void)arena;
  return "not x86-64: kernels are compiled for the baseline";
#endif
}

static void find_machine(Arena *arena, Findings *list) {
  char buffer[32];
  uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  add(arena, list, "machine", "cores",
      arena_printf(arena, "%u usable of %ld", cores_available(), sysconf(_SC_NPROCESSORS_ONLN)), NULL);
  add(arena, list, "machine", "memory", arena_strdup(arena, text_bytes(buffer, memory)), NULL);
  add(arena, list, "machine", "cpu", cpu_features(arena), NULL);
}

static void find_gemm(Arena *arena, Findings *list) {
  static const struct {
    const char *name, *help;
  } libraries[] = {{"onednn", "apt-get install libdnnl2"},
                   {"openblas", "apt-get install libopenblas0-pthread"},
                   {"builtin", NULL}};
  for (int i = 0; i < 3; i++) {
    const char *why = NULL;
    const Gemm *gemm = gemm_open(libraries[i].name, &why);
    const char *value = gemm ? "loads" : arena_printf(arena, "missing: %s", why ? why : "it does not load");
    add(arena, list, "matrix products", libraries[i].name, value, gemm ? NULL : libraries[i].help);
  }
}

static void find_devices(Arena *arena, Findings *list) {
#if FSDPC_HAVE_CUDA
  CudaFinding found[CUDA_FINDINGS];
  int count = cuda_findings(arena, found);
  for (int i = 0; i < count; i++) add(arena, list, "devices", found[i].name, found[i].value, found[i].help);
#else
  add(arena, list, "devices", "CUDA", "not in this build", "build with -DFSDPC_CUDA=ON; it needs nvcc of the CUDA toolkit");
#endif
}

/* Wanted by runs on several hosts only. */
static void find_mpi(Arena *arena, Findings *list) {
  char version[MPI_VERSION_BYTES];
  Failure failure = {0};
  if (mpi_lib_version(version, &failure))
    add(arena, list, "several hosts", "MPI", arena_printf(arena, "%s loads", version), NULL);
  else
    add(arena, list, "several hosts", "MPI", "missing", arena_strdup(arena, failure.text));
}

/* What a run would make of them, too. */
static void find_launcher(Arena *arena, Findings *list) {
  static const char group[] = "launcher variables";
  static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                                      "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES",
                                      "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                      "PMI_RANK", "PMI_SIZE", "OMP_NUM_THREADS"};
  Launcher launcher;
  Failure failure = {0};
  for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *value = getenv(names[i]);
    if (value) add(arena, list, group, names[i], value, NULL);
  }
  if (!launcher_detect(&launcher, &failure))
    add(arena, list, group, "invalid", "see help", arena_strdup(arena, failure.text));
  else if (launcher.name)
    add(arena, list, group, "job", arena_printf(arena, "rank %u of %u, started by %s", launcher.rank, launcher.ranks, launcher.name), NULL);
}

static void find_settings(Arena *arena, Findings *list) {
  for (int s = 0; s < SETTING_COUNT; s++) {
    const char *name = environment_name((Setting)s), *value = getenv(name);
    if (value && *value) add(arena, list, "settings", name, value, NULL);
  }
  Stray stray;
  for (uint32_t at = 0; environment_stray(&at, &stray);)
    add(arena, list, "settings", arena_strdup(arena, stray.name), "has no effect", arena_printf(arena, "did you mean %s?", stray.meant));
  Failure failure = {0};
  if (!environment_check(&failure)) add(arena, list, "settings", "invalid", "see help", arena_strdup(arena, failure.text));
}

static void print_text(const Findings *list) {
  for (uint32_t i = 0; i < list->count; i++) {
    const Finding *finding = &list->data[i];
    if (i == 0 || strcmp(finding->group, list->data[i - 1].group)) printf("%s\n", finding->group);
    printf("  %-12s %s\n", finding->name, finding->value);
    if (finding->help) printf("  %-12s help: %s\n", "", finding->help);
  }
}

static void print_json(Arena *arena, const Findings *list) {
  json_t *array = json_array();
  for (uint32_t i = 0; i < list->count; i++) {
    const Finding *finding = &list->data[i];
    json_array_append_new(array, json_pack("{s:s, s:s, s:s, s:s?}", "group", finding->group, "name",
                                           finding->name, "value", text_utf8(arena, finding->value), "help", text_utf8(arena, finding->help)));
  }
  json_t *object = json_pack("{s:i, s:o}", "schema_version", 1, "findings", array);
  json_dumpf(object, stdout, JSON_INDENT(2));
  printf("\n");
  json_decref(object);
}

int cmd_doctor(Cli *cli) {
  Findings list = {0};
  find_versions(cli->arena, &list);
  find_models(cli, &list);
  find_machine(cli->arena, &list);
  find_gemm(cli->arena, &list);
  find_devices(cli->arena, &list);
  find_mpi(cli->arena, &list);
  find_launcher(cli->arena, &list);
  find_settings(cli->arena, &list);
  if (option_given(&cli->options, OPTION_JSON))
    print_json(cli->arena, &list);
  else
    print_text(&list);
  return EXIT_OK;
}
