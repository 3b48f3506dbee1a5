/* Owns: `fsdpc profile`: measures this machine's cores as the CPU backend uses them (one thread a rank) and
 * writes a cluster file. Every figure is the median or best of several runs of the kernels and collectives
 * that training itself uses. */
#include "cli/cli.h"

#include "cli/profile.h"

#include <sched.h>
#include <unistd.h>

enum { MOST_RANKS = 64 };

static int usable_cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

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

static void write_table(Text *out, const char *name, const ProfileResult *r, Collective kind) {
  text_printf(out, "    %s %u {", name, r->ranks);
  for (int i = 0; i < PROFILE_SIZES; i++)
    text_printf(out, "  %dMiB %.1fus", 1 << (2 * i), r->collective_ns[kind][i] / 1e3);
  text_printf(out, "  }  # measured\n");
}

static void write_device(Text *out, const ProfileResult *r, const char *name, uint64_t memory) {
  text_printf(out, "  device cpu {\n    name \"one core of %s\"\n", name);
  text_printf(
      out, "    memory %lluMiB  # an equal share of half of this machine's memory; --memory says otherwise\n",
      (unsigned long long)(memory >> 20));
  text_printf(out, "    bandwidth %.3gGB/s  # measured: AdamW over 64 MiB\n", r->bandwidth / 1e9);
  text_printf(out, "    bandwidth_share %.3f  # measured: addition of tensors beside it\n",
              r->bandwidth_share);
  text_printf(out, "    peak f32 %.4gGFLOPS  # measured: fastest product, %s\n", r->peak / 1e9, r->gemm);
  text_printf(out, "    gemm_share %.3f  # measured: linear layers of a transformer's shapes, forward and backward\n",
              r->gemm_share);
  text_printf(out, "    gemm_prologue %.1f  # measured: from the same\n", r->gemm_prologue);
  text_printf(out, "    attention_share %.3f  # measured: causal, forward, long sequences\n",
              r->attention_share);
  text_printf(out, "    attention_backward %.3f  # measured: 1024 tokens\n", r->attention_backward);
  text_printf(out, "    attention_tokens %.0f  # measured: from 128 and 1024 tokens\n", r->attention_tokens);
  text_printf(out, "    launch %.3fus  # measured: the smallest kernel\n", r->launch_ns / 1e3);
  text_printf(out, "    shared_queue yes  # one communication thread a rank\n  }\n");
}

static void write_cluster(Text *out, const ProfileResult *r, const char *name, uint64_t memory) {
  text_printf(out, "# Written by `fsdpc profile`: %s, %u rank%s of one thread each.\n", name, r->ranks,
              r->ranks == 1 ? "" : "s");
  text_printf(out, "cluster \"profile\" {\n");
  write_device(out, r, name, memory);
  text_printf(out, "  node {\n    devices %u\n", r->ranks);
  if (r->ranks > 1) {
    double largest = 1ull << (20 + 2 * (PROFILE_SIZES - 1)), part = (r->ranks - 1.0) / r->ranks;
    text_printf(out, "    bandwidth %.3gGB/s  # measured: largest gather\n",
                largest * part / r->collective_ns[COLLECTIVE_GATHER][PROFILE_SIZES - 1]);
    text_printf(out, "    reduce_bandwidth %.3gGB/s  # measured: largest reduction\n",
                largest * part / r->collective_ns[COLLECTIVE_REDUCE][PROFILE_SIZES - 1]);
    text_printf(out, "    latency %.2fus  # measured: gather of 4 KiB\n", r->latency_ns / 1e3);
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
static bool write_formatted(Cli *cli, const char *path, const Text *text) {
  if (!cli_write_file(cli, path, text->data, text->length)) return false;
  const char *formatted = frontend_format(cli->arena, &cli->sources, &cli->sink, path);
  if (!formatted) cli_bug("the cluster file written to %s does not parse", path);
  return cli_write_file(cli, path, formatted, strlen(formatted));
}

int cmd_profile(Cli *cli) {
  int64_t ranks = usable_cores() > 1 ? 2 : 1;
  ProfileResult result;
  if (!option_integer(&cli->options, OPTION_RANKS, 1, MOST_RANKS, &ranks)) return EXIT_USAGE;
  const char *failure = profile_measure(cli->arena, (uint32_t)ranks, &result);
  if (failure) return cli_error("cannot measure: %s", failure);
  uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2 / (uint64_t)ranks;
  Text text = {.arena = cli->arena};
  write_cluster(&text, &result, processor(cli->arena), memory);
  const char *output = option_text(&cli->options, OPTION_OUTPUT, NULL);
  if (output) return write_formatted(cli, output, &text) ? EXIT_OK : EXIT_INVALID;
  fwrite(text.data, 1, text.length, stdout);
  return EXIT_OK;
}
