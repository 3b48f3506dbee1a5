"""Owns: policies that `fsdpc export --to torch|transformers|accelerate` wrote, in the libraries that are to read them. Two processes over
gloo train small Hugging Face models under each --to torch policy; their losses are compared with those of the model as it is, on one process.
What is for a Trainer or for Accelerate is read by them.

    policies.py

Prints a Markdown table; exits 1 where a policy is not taken or losses differ. Needs PyTorch, transformers and accelerate:
tools/against-pytorch.sh brings them. What moves state to host memory is left out: PyTorch pins that memory through a CUDA driver.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

HERE = os.path.dirname(os.path.abspath(__file__))
FSDPC = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "fsdpc")
STEPS, ACCUMULATION, SAMPLES, CONTEXT, VOCAB = 4, 2, 2, 64, 512
TOLERANCE = {"f32": 1e-6, "bf16": 1e-3}  # relative, of a loss

# name: options of fsdpc export
POLICIES = {
    "block, nothing again": ["--wrap", "block", "--checkpoint", "none"],
    "block, all again": ["--wrap", "block", "--checkpoint", "full"],
    "block, compiled": ["--wrap", "block", "--executor", "pytorch-fsdp2-compiled"],
    "units of 300,000": ["--wrap", "size:300000", "--checkpoint", "full", "--prefetch", "2"],
    "units of 600,000": ["--wrap", "size:600000", "--reshard", "no"],
    "whole": ["--wrap", "whole", "--checkpoint", "none"],
    "whole, compiled, all again": ["--wrap", "whole", "--checkpoint", "full", "--executor", "pytorch-fsdp2-compiled"],
    "replicated": ["--strategy", "no_shard"],
    "bf16": ["--wrap", "block", "--precision", "bf16:f32"],
}


def make_models(folder):
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    shape = dict(vocab_size=VOCAB, hidden_size=128, intermediate_size=256, num_hidden_layers=6, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=256)
    gpt2 = dict(vocab_size=VOCAB, n_embd=128, n_layer=6, n_head=4, n_positions=256, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)
    models = {"gpt2": GPT2LMHeadModel(GPT2Config(**gpt2)), "llama": LlamaForCausalLM(LlamaConfig(**shape)),
              "qwen3": Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=32, tie_word_embeddings=True))}
    for name, model in models.items():
        model.save_pretrained(os.path.join(folder, name))
        fsdpc("import", os.path.join(folder, name), "-o", os.path.join(folder, name + ".fsdp"))
    return list(models)


def fsdpc(*arguments):
    done = subprocess.run([FSDPC, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"fsdpc {' '.join(arguments)}\n{done.stderr}")


def export(folder, model, target, path, options):
    if "--executor" not in options:
        options = options + ["--executor", "pytorch-fsdp2-eager"]
    fsdpc("export", os.path.join(folder, model + ".fsdp"), "--ranks", "2", "--cluster", "dgx-h100", "--to", target, "-o", path, *options)


# --- one training ---------------------------------------------------------------------------------------------------------------------


def loss_of(model, step, micro, rank):
    generator = torch.Generator().manual_seed(1000 * step + 10 * micro + rank)
    tokens = torch.randint(0, VOCAB, (SAMPLES, CONTEXT + 1), generator=generator)
    return cross_entropy(model(tokens[:, :-1]).logits.flatten(0, 1).float(), tokens[:, 1:].flatten()) / ACCUMULATION


def load(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def train(model, ranks, before=lambda last: None):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        loss = torch.zeros(())
        for micro in range(ACCUMULATION):
            before(micro == ACCUMULATION - 1)
            for rank in ranks:
                part = loss_of(model, step, micro, rank) / len(ranks)
                part.backward()
                loss += part.detach()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
    return torch.stack(losses)


def worker(policy_path, folder):
    """One of two processes; the first prints losses."""
    dist.init_process_group("gloo")
    spec = importlib.util.spec_from_file_location("policy", policy_path)
    policy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(policy)
    model = policy.apply(load(folder), "cpu")
    losses = train(model, [dist.get_rank()], lambda last: policy.before_backward(model, last=last)) / dist.get_world_size()
    dist.all_reduce(losses)
    if dist.get_rank() == 0:
        print(json.dumps(losses.tolist()), flush=True)
    dist.destroy_process_group()


# --- all of them ----------------------------------------------------------------------------------------------------------------------


def losses_under(policy_path, folder):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", os.path.abspath(__file__), policy_path, folder]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    losses = [line for line in done.stdout.splitlines() if line.startswith("[")]  # once they are there, PyTorch may abort as it exits
    if not losses:
        sys.stderr.write(done.stderr)
        return None
    return torch.tensor(json.loads(losses[-1]))


def read_by(folder, model):
    """Which libraries take what is written for them."""
    from accelerate.commands.config.config_args import load_config_from_file
    from transformers import TrainingArguments

    options = ["--wrap", "block", "--checkpoint", "full", "--reshard", "yes", "--precision", "bf16:bf16", "--lossy"]
    trainer, accelerate = os.path.join(folder, "trainer.json"), os.path.join(folder, "accelerate.yaml")
    export(folder, model, "transformers", trainer, options)
    export(folder, model, "accelerate", accelerate, options)
    with open(trainer) as file:
        arguments = TrainingArguments(output_dir=folder, use_cpu=True, **json.load(file))
    config = load_config_from_file(accelerate)
    return {"a Trainer": arguments.fsdp and arguments.fsdp_config["activation_checkpointing"],
            "Accelerate": config.fsdp_config["fsdp_activation_checkpointing"]}


def row(model, policy, result):
    print(f"| {model} | {policy} | {result} |", flush=True)


def compare(folder, model):
    """Whether all policies of a model are taken; prints a row for each."""
    weights, path, good = os.path.join(folder, model), os.path.join(folder, "policy.py"), True
    alone = train(load(weights), [0, 1])
    for name, options in POLICIES.items():
        export(folder, model, "torch", path, options)
        losses = losses_under(path, weights)
        off = float("inf") if losses is None else float(((losses - alone) / alone).abs().max())
        good &= off <= TOLERANCE["bf16" if name == "bf16" else "f32"]
        row(model, name, "it fails" if losses is None else f"{off:.1e}")
    for library, taken in read_by(folder, model).items():
        good &= bool(taken)
        row(model, f"block, for {library}", "read" if taken else "it fails")
    return good


def main():
    with tempfile.TemporaryDirectory() as folder:
        print("| model | policy | losses differ by |\n|---|---|---|")
        return 0 if all([compare(folder, model) for model in make_models(folder)]) else 1


if __name__ == "__main__":
    if len(sys.argv) == 3:
        worker(*sys.argv[1:])
    else:
        sys.exit(main())
