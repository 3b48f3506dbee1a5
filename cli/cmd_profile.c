/* Owns: `fsdpc profile`: measures this machine's cores as the CPU backend uses them and writes a cluster file. Every figure
 * is a quiet one of several runs of what training itself runs. */
#include "cli/cli.h"

#include "base/cores.h"
#include "cli/profile.h"
#include "runtime/failure.h"

#include <unistd.h>

enum { MOST_RANKS = 64 };

/* A header that a comment can hold: the processor's name, or nothing. */
static const char *processor(Arena *arena) {
  FILE *file = fopen("/proc/cpuinfo", "r");
  char line[256];
  const char *name = "CPU";
  while (file && fgets(line, sizeof line, file)) {
    char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) || !colon) continue;
    colon[1 + strcspn(colon + 1, "\n\"#")] = 0;
    name = arena_strdup(arena, colon + 2);
    break;
  }
  if (file) fclose(file);
  return name;
}

static void write_size(Text *out, const TimedSize *size) {
  text_printf(out, "  %.5gKiB %.4gus", size->bytes / 1024, size->ns / 1e3);
}

static void write_kernels(Text *out, const ProfileResult *r) {
  for (int i = 0; i < PRODUCT_PASSES; i++) {
    const PassRate *p = &r->products[i];
    if (p->rate > 0)
      text_printf(out, "    product %s { rate %.4gGFLOPS m %.3g n %.3g k %.3g }\n", cluster_products[i], p->rate / 1e9, p->m, p->n, p->k);
  }
  for (int i = 0; i < 2; i++) {
    const HeadRate *a = &r->attention[i];
    if (a->rate > 0)
      text_printf(out, "    attention %s { rate %.4gGFLOPS tokens %.3g dims %.3g }\n", cluster_attention[i], a->rate / 1e9, a->tokens, a->dims);
  }
  for (int i = 0; i < MOVE_COUNT; i++) {
    if (!r->moves[i].count) continue;
    text_printf(out, "    moves %s {", cluster_moves[i]);
    for (uint32_t k = 0; k < r->moves[i].count; k++) write_size(out, &r->moves[i].data[k]);
    text_printf(out, "  }\n");
  }
}

static void write_device(Text *out, const ProfileResult *r, const char *name, uint64_t memory) {
  text_printf(out, "  device cpu {\n    name \"%u core%s of %s\"\n", r->threads, text_plural(r->threads), name);
  text_printf(
      out, "    memory %lluMiB  # an equal share of half of this machine's memory; --memory says otherwise\n",
      (unsigned long long)(memory >> 20));
  text_printf(out, "    bandwidth %.3gGB/s  # measured: AdamW\n", r->bandwidth / 1e9);
  text_printf(out, "    bandwidth_share %.3f  # measured: addition of tensors beside it\n",
              r->bandwidth_share);
  text_printf(out, "    peak f32 %.4gGFLOPS  # measured: fastest product, %s\n", r->peak / 1e9, r->gemm);
  text_printf(out, "    launch %.3fus  # measured: between two instructions\n", r->launch_ns / 1e3);
  text_printf(out, "    shared_queue yes  # one communication thread a rank\n");
  text_printf(out, "    # Measured within steps of small models: products and attention fitted, moves by size.\n");
  write_kernels(out, r);
  text_printf(out, "  }\n");
}

static void write_table(Text *out, const char *name, const ProfileResult *r, Collective kind) {
  text_printf(out, "    %s %u {", name, r->ranks);
  for (int i = 0; i < PROFILE_SIZES; i++) write_size(out, &r->collectives[kind][i]);
  text_printf(out, "  }  # measured\n");
}

static double link_rate(const ProfileResult *r, Collective kind) {
  const TimedSize *largest = &r->collectives[kind][PROFILE_SIZES - 1];
  return largest->bytes * (r->ranks - 1.0) / r->ranks / largest->ns;
}

static void write_cluster(Text *out, const ProfileResult *r, const char *name, uint64_t memory) {
  text_printf(out, "# Written by `fsdpc profile`: %s, %u rank%s of %u thread%s each.\n", name, r->ranks,
              text_plural(r->ranks), r->threads, text_plural(r->threads));
  text_printf(out, "cluster \"profile\" {\n");
  write_device(out, r, name, memory);
  text_printf(out, "  node {\n    devices %u\n", r->ranks);
  if (r->ranks > 1) {
    text_printf(out, "    bandwidth %.3gGB/s  # measured: largest gather\n", link_rate(r, COLLECTIVE_GATHER));
    text_printf(out, "    reduce_bandwidth %.3gGB/s  # measured: largest reduction\n", link_rate(r, COLLECTIVE_REDUCE));
    text_printf(out, "    latency %.2fus  # measured: smallest gather\n", r->latency_ns / 1e3);
    write_table(out, "gather", r, COLLECTIVE_GATHER);
    write_table(out, "reduce", r, COLLECTIVE_REDUCE);
    write_table(out, "all_reduce", r, COLLECTIVE_ALLREDUCE);
  }
  text_printf(out, "  }\n  contention %.2f  # measured: products beside gathers\n", r->contention);
  text_printf(out, "  compute_spread %.2f  # measured: slow repetitions of products against their median\n",
              r->compute_spread);
  text_printf(out, "  comm_spread %.2f  # measured: the same of collectives\n}\n", r->comm_spread);
}

/* In the layout that `fmt` would give it, which aligns the comments. */
static const char *format(Cli *cli, const Text *text) {
  const char *formatted = frontend_format_text(cli->arena, &cli->sources, &cli->sink, "profile", text->data);
  if (!formatted) cli_bug("the cluster file that was measured does not parse");
  return formatted;
}

int cmd_profile(Cli *cli) {
  int64_t ranks = cores_available() > 1 ? 2 : 1, threads = 0;
  ProfileResult result;
  Failure failure = {0};
  if (!option_integer(&cli->options, OPTION_RANKS, 1, MOST_RANKS, &ranks) ||
      !cli_threads(&cli->options, &threads))
    return EXIT_USAGE;
  if (!profile_measure(cli->arena, (uint32_t)ranks, (uint32_t)threads, &result, &failure)) {
    if (*failure.text) cli_error("cannot measure: %s", failure.text);
    return failure.code;
  }
  uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2 / (uint64_t)ranks;
  Text text = {.arena = cli->arena};
  write_cluster(&text, &result, processor(cli->arena), memory);
  const char *output = option_text(&cli->options, OPTION_OUTPUT, NULL);
  const char *formatted = format(cli, &text);
  if (output) return cli_write_file(cli, output, formatted, strlen(formatted)) ? EXIT_OK : EXIT_INVALID;
  fputs(formatted, stdout);
  return EXIT_OK;
}
