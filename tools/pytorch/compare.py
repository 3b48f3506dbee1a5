"""Owns: fsdpc beside PyTorch on this machine: do the losses agree, how long does a step take, how much memory; and what
fsdpc says of itself: how much communication is hidden, how far predictions are off.

    compare.py losses             50 steps from the same weights, GPT-2 and llama shapes, 1 and 2 ranks
    compare.py speed [CELL..]     paired runs that alternate, so that a machine whose speed drifts slows both
    compare.py memory [CELL..]    the most that all processes of a run held at once
    compare.py overlap [CELL..]   communication of a measured step (`run --trace`) during which nothing computes
    compare.py predicted [CELL..] predicted beside measured step, after `fsdpc profile`

Both read the same tokens, weights (written by `fsdpc export`) and recipe. Prints Markdown tables; exits 1 when losses
differ by more than 1e-4. Needs PyTorch, numpy and safetensors: tools/against-pytorch.sh brings them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FSDPC = os.path.join(ROOT, "build", "fsdpc")
TOLERANCE = 1e-4  # relative, of a loss
TOKENS = 4_000_000
RECIPE = dict(lr=6e-4, warmup=10, betas=[0.9, 0.95], eps=1e-8, decay=0.1, clip=1.0)

GPT2 = dict(family="gpt2", vocab=50257, d=768, heads=12, layers=12)
BABY = dict(family="gpt2", vocab=256, d=384, heads=6, layers=6)
LLAMA = dict(family="llama", vocab=256, d=256, heads=8, kv_heads=4, ffn=688, layers=4)
SMALL = dict(family="gpt2", vocab=256, d=256, heads=8, layers=4)

# name: model, ctx, samples a step, ranks, threads a rank, steps a run
CELLS = {
    "124M 4x64 1x2": (GPT2, 64, 4, 1, 2, 8),
    "124M 4x256 1x2": (GPT2, 256, 4, 1, 2, 6),
    "124M 4x256 2x1": (GPT2, 256, 4, 2, 1, 6),
    "10M 16x128 1x2": (BABY, 128, 16, 1, 2, 20),
    "10M 16x128 2x1": (BABY, 128, 16, 2, 1, 20),
}
DEEP = dict(family="gpt2", vocab=256, d=384, heads=6, layers=12)
QUICKSTART = dict(family="gpt2", vocab=256, d=128, heads=4, layers=4)
OVERLAP = {
    "10M 16x128 2x1": CELLS["10M 16x128 2x1"],
    "12 layers, 16x128 2x1": (DEEP, 128, 16, 2, 1, 12),
    "124M 4x256 2x1": CELLS["124M 4x256 2x1"],
}
PREDICTED = {
    f"{name} {ranks}x{threads}": (model, ctx, batch, ranks, threads, steps)
    for ranks, threads in ((1, 2), (2, 1))
    for name, model, ctx, batch, steps in (
        ("quickstart 32x128", QUICKSTART, 128, 32, 30),
        ("10M 16x128", BABY, 128, 16, 12),
        ("llama 8x128", LLAMA, 128, 8, 30),
        ("124M 4x64", GPT2, 64, 4, 8),
        ("124M 4x256", GPT2, 256, 4, 6),
    )
}
LOSSES = {
    "GPT-2, 1 rank": (SMALL, 128, 8, 1, 2, 50),
    "GPT-2, 2 ranks": (SMALL, 128, 8, 2, 1, 50),
    "llama, 1 rank": (LLAMA, 128, 8, 1, 2, 50),
    "llama, 2 ranks": (LLAMA, 128, 8, 2, 1, 50),
}

MODEL = {
    "gpt2": "loss = gpt2(tokens, targets, vocab, ctx, d, heads, layers)",
    "llama": """x = llama(tokens, vocab, d, heads, kv_heads, ffn, layers) as model
  loss = cross_entropy(linear(x, vocab, bias = false) as lm_head, targets)""",
}
FILE = """use "families/{family}.fsdp"

model against_pytorch {{
  let {lets}
  input tokens: int[batch, ctx]
  input targets: int[batch, ctx]
  {model}
}}
train {{
  optimizer adamw {{ lr {lr} constant warmup {warmup} betas {beta1} {beta2} eps {eps} decay {decay} }}
  batch {batch}
  steps 1000
  precision f32
  clip {clip}
  seed 1337
  order sequential
}}
cluster {{ use "clusters/cpu.fsdp" }}
plan {{ memory 12GiB }}
"""


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}\nfailed with {done.returncode}")


def make_tokens(path, vocab):
    """Frequent and rare tokens, each four times in five followed by its own successor: 50 steps learn some of it."""
    import numpy as np

    rng = np.random.default_rng(1337)
    drawn = (vocab * rng.random(TOKENS) ** 4).astype(np.int64)
    follow = (3 * drawn + 7) % vocab
    tokens = np.where((np.arange(TOKENS) % 2 == 1) & (rng.random(TOKENS) < 0.8), np.roll(follow, 1), drawn)
    tokens.astype(np.uint16).tofile(path)


class Cell:
    """One model at one batch on one number of ranks, prepared for both programs."""

    def __init__(self, cell, folder, *plan_options):
        model, self.ctx, self.batch, self.ranks, self.threads, self.steps = cell
        self.folder = folder
        shape = dict(model, ctx=self.ctx, batch=self.batch, **RECIPE)
        lets = ", ".join(f"{key} = {value}" for key, value in shape.items() if key not in RECIPE and key not in ("family", "batch"))
        recipe = dict(RECIPE, beta1=RECIPE["betas"][0], beta2=RECIPE["betas"][1])
        write(self.at("model.fsdp"), FILE.format(family=model["family"], lets=lets, model=MODEL[model["family"]], batch=self.batch, **recipe))
        write(self.at("shape.json"), json.dumps(shape))
        make_tokens(self.at("tokens.bin"), model["vocab"])
        micro = str(self.batch // self.ranks)
        run([FSDPC, "plan", self.at("model.fsdp"), "--ranks", str(self.ranks), "--micro-batch", micro, *plan_options, "-o", self.at("plan")])
        self.make_weights()

    def at(self, name):
        return os.path.join(self.folder, name)

    def make_weights(self):
        """Both start from the weights after one step of fsdpc's training, as `fsdpc export` writes them."""
        data = ["--data", self.at("tokens.bin"), "--quiet"]
        run([FSDPC, "run", self.at("plan"), *data, "--steps", "1", "--save", self.at("saved")])
        run([FSDPC, "export", self.at("plan"), self.at("hf"), "--to", "safetensors", "--weights", self.at("saved")])

    def fsdpc(self, steps, *more):
        return [FSDPC, "run", self.at("plan"), "--data", self.at("tokens.bin"), "--init", self.at("hf"), "--threads",
                str(self.threads), "--steps", str(steps), "--metrics", self.at("metrics"), "--quiet", *more]  # fmt: skip

    def torch(self, steps, *more):
        weights = os.path.join(self.at("hf"), "model.safetensors")
        return [sys.executable, os.path.join(HERE, "train.py"), "--shape", self.at("shape.json"), "--weights", weights, "--data",
                self.at("tokens.bin"), "--ranks", str(self.ranks), "--threads", str(self.threads), "--steps", str(steps),
                "--out", self.at("torch.json"), *more]  # fmt: skip

    def read_fsdpc(self):
        with open(self.at("metrics")) as file:
            lines = [json.loads(line) for line in file]
        steps = [line for line in lines if line["reason"] == "step"]
        return {"losses": [s["loss"] for s in steps], "grad_norms": [s["grad_norm"] for s in steps],
                "step_s": [s["step_ns"] * 1e-9 for s in steps]}  # fmt: skip

    def read_torch(self):
        with open(self.at("torch.json")) as file:
            return json.load(file)

    def run_fsdpc(self, steps):
        run(self.fsdpc(steps))
        return self.read_fsdpc()

    def run_torch(self, steps, *more):
        run(self.torch(steps, *more))
        return self.read_torch()


def relative(a, b):
    return max(abs(x - y) / abs(y) for x, y in zip(a, b, strict=True))


def losses(folder, names):
    agree = True
    print("| shape | steps | first and last loss | largest relative difference of losses | of gradient norms |\n|---|---|---|---|---|")
    for name in names or LOSSES:
        cell = Cell(LOSSES[name], tempfile.mkdtemp(dir=folder))
        ours, theirs = cell.run_fsdpc(cell.steps), cell.run_torch(cell.steps)
        off = relative(ours["losses"], theirs["losses"])
        agree &= off <= TOLERANCE
        print(f"| {name} | {cell.steps} | {ours['losses'][0]:.4f} {ours['losses'][-1]:.4f} | {off:.1e} | "
              f"{relative(ours['grad_norms'], theirs['grad_norms']):.1e} |", flush=True)  # fmt: skip
    return agree


def typical(result):
    """Median step without the first two, which touch memory and warm caches."""
    return statistics.median(result["step_s"][2:])


def speed(folder, names, pairs, compiled):
    print(f"load {os.getloadavg()[0]:.1f} at the start, {os.cpu_count()} cores, best of {pairs} pairs\n")
    print("| cell | fsdpc, ms | PyTorch, ms | PyTorch / fsdpc | pair by pair |\n|---|---|---|---|---|")
    for name in names or CELLS:
        cell = Cell(CELLS[name], tempfile.mkdtemp(dir=folder))
        ours, theirs = [], []
        for _ in range(pairs):
            ours.append(typical(cell.run_fsdpc(cell.steps)))
            theirs.append(typical(cell.run_torch(cell.steps, *compiled)))
        each = " ".join(f"{t / o:.2f}" for o, t in zip(ours, theirs))
        print(f"| {name} | {1e3 * min(ours):.1f} | {1e3 * min(theirs):.1f} | {min(theirs) / min(ours):.2f} | {each} |", flush=True)


def descendants(pid):
    found = [pid]
    for each in found:
        try:
            for task in os.listdir(f"/proc/{each}/task"):
                with open(f"/proc/{each}/task/{task}/children") as file:
                    found += [int(child) for child in file.read().split()]
        except OSError:
            pass
    return found


def proportional_bytes(pid):
    """Pages that processes share count once over all of them (Pss)."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


def peak_bytes(command):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(proportional_bytes, descendants(process.pid))))
        time.sleep(0.05)
    return peak


def memory(folder, names):
    print("| cell | fsdpc, MiB | PyTorch, MiB | PyTorch / fsdpc |\n|---|---|---|---|")
    for name in names or CELLS:
        cell = Cell(CELLS[name], tempfile.mkdtemp(dir=folder))
        ours, theirs = peak_bytes(cell.fsdpc(4)), peak_bytes(cell.torch(4))
        print(f"| {name} | {ours >> 20} | {theirs >> 20} | {theirs / ours:.2f} |", flush=True)


def exposed_share(trace):
    """Of the time that rank 0 communicates, waiting for the other rank included, the part without compute beside it."""
    with open(trace) as file:
        events = json.load(file)["traceEvents"]
    measured = {e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name" and "measured" in e["args"]["name"]}
    spans = {True: [], False: []}  # by whether they communicate
    for event in events:
        if event["ph"] == "X" and event["pid"] in measured and event["cat"] in ("compute", "gather", "reduce", "replicate"):
            spans[event["cat"] != "compute"].append((event["ts"], event["ts"] + event["dur"]))
    total = sum(end - begin for begin, end in spans[True])
    hidden = sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in spans[True] for b in spans[False])
    return (total - hidden) / total, total * 1e-3


def overlap(folder, names):
    print(f"load {os.getloadavg()[0]:.1f}\n\n| cell | communication, ms a step | exposed |\n|---|---|---|")
    for name in names or OVERLAP:
        # Left alone, the planner takes one unit on such a machine, and has nothing to overlap.
        cell = Cell(OVERLAP[name], tempfile.mkdtemp(dir=folder), "--strategy", "full_shard", "--wrap", "block")
        shares = []
        for _ in range(5):
            run(cell.fsdpc(cell.steps, "--trace", cell.at("trace.json")))
            shares.append(exposed_share(cell.at("trace.json")))
        share, total = min(shares)
        print(f"| {name} | {total:.1f} | {100 * share:.0f} % (of 5 runs: {' '.join(f'{100 * s:.0f}' for s, _ in shares)}) |", flush=True)


def predicted(folder, names):
    print("| cell | predicted, ms | median step, ms | off | fastest step, ms | off | load |\n|---|---|---|---|---|---|---|")
    for name in names or PREDICTED:
        ranks, threads = PREDICTED[name][3:5]
        cluster = os.path.join(folder, f"{ranks}x{threads}.fsdp")
        if not os.path.exists(cluster):
            run([FSDPC, "profile", "--ranks", str(ranks), "--threads", str(threads), "-o", cluster])
        cell = Cell(PREDICTED[name], tempfile.mkdtemp(dir=folder), "--cluster", cluster)
        plan = [FSDPC, "plan", cell.at("model.fsdp"), "--ranks", str(cell.ranks), "--micro-batch", str(cell.batch // cell.ranks)]
        done = subprocess.run([*plan, "--cluster", cluster, "--json"], stdout=subprocess.PIPE, check=True)
        expected = json.loads(done.stdout)["step_ns"] * 1e-6
        runs = [cell.run_fsdpc(cell.steps)["step_s"][2:] for _ in range(3)]
        middle, fastest = 1e3 * min(map(statistics.median, runs)), 1e3 * min(map(min, runs))
        print(f"| {name} | {expected:.1f} | {middle:.1f} | {round(100 * (middle / expected - 1)):+d} % | {fastest:.1f} | "
              f"{round(100 * (fastest / expected - 1)):+d} % | {os.getloadavg()[0]:.1f} |", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["losses", "speed", "memory", "overlap", "predicted"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "losses":
            sys.exit(0 if losses(folder, options.names) else 1)
        elif options.what == "speed":
            speed(folder, options.names, options.pairs, ["--compile"] if options.compile else [])
        else:
            {"memory": memory, "overlap": overlap, "predicted": predicted}[options.what](folder, options.names)


if __name__ == "__main__":
    main()
