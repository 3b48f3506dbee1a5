"""Owns: the same training as `fsdpc run` does, in PyTorch as its users write it: models with the names of Hugging Face's
files, scaled_dot_product_attention, fused AdamW, gradient clipping, FSDP2's fully_shard over gloo for several ranks.

    python train.py --shape shape.json --weights W.safetensors --data tokens.bin --ranks 2 --threads 1 --steps 50 --out result.json

shape.json holds what compare.py wrote the .fsdp file from. Rank 0 writes losses, gradient norms, step times and versions.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file


class Gpt2Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        d = s["d"]
        self.heads = s["heads"]
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.c_attn, self.attn.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp.c_fc, self.mlp.c_proj = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        batch, time_, d = x.shape
        q, k, v = (
            t.view(batch, time_, self.heads, -1).transpose(1, 2) for t in self.attn.c_attn(self.ln_1(x)).split(d, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn.c_proj(mixed.transpose(1, 2).reshape(batch, time_, d))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(s["vocab"], s["d"]), nn.Embedding(s["ctx"], s["d"])
        self.h = nn.ModuleList(Gpt2Block(s) for _ in range(s["layers"]))
        self.ln_f = nn.LayerNorm(s["d"])

    blocks = property(lambda self: self.h)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return self.loss(x, targets)

    def loss(self, x, targets):
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def llama3_frequencies(dim, theta=500000.0, factor=8.0, low=1.0, high=4.0, original=8192):
    """Hugging Face's rope_type "llama3"."""
    freq = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    wave = 2 * math.pi / freq
    smooth = ((original / wave - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * freq / factor + smooth * freq


class LlamaBlock(nn.Module):
    def __init__(self, s):
        super().__init__()
        d, kv, ffn = s["d"], s["d"] // s["heads"] * s["kv_heads"], s["ffn"]
        self.head_dim = d // s["heads"]
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
        self.self_attn, self.mlp = nn.Module(), nn.Module()
        for name, size in (("q_proj", d), ("k_proj", kv), ("v_proj", kv), ("o_proj", d)):
            setattr(self.self_attn, name, nn.Linear(d, size, bias=False))
        self.mlp.gate_proj, self.mlp.up_proj = nn.Linear(d, ffn, bias=False), nn.Linear(d, ffn, bias=False)
        self.mlp.down_proj = nn.Linear(ffn, d, bias=False)

    def heads_first(self, x):
        return x.view(x.shape[0], x.shape[1], -1, self.head_dim).transpose(1, 2)

    def forward(self, x, cos, sin):
        a, y = self.self_attn, self.input_layernorm(x)
        q, k, v = (self.heads_first(p(y)) for p in (a.q_proj, a.k_proj, a.v_proj))
        half = self.head_dim // 2
        q, k = (t * cos + torch.cat((-t[..., half:], t[..., :half]), -1) * sin for t in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + a.o_proj(mixed.transpose(1, 2).reshape(x.shape))
        y = self.post_attention_layernorm(x)
        return x + self.mlp.down_proj(F.silu(self.mlp.gate_proj(y)) * self.mlp.up_proj(y))


class Llama(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(s["vocab"], s["d"])
        self.model.layers = nn.ModuleList(LlamaBlock(s) for _ in range(s["layers"]))
        self.model.norm = nn.RMSNorm(s["d"], eps=1e-5)
        self.lm_head = nn.Linear(s["d"], s["vocab"], bias=False)
        angle = torch.arange(s["ctx"])[:, None] * llama3_frequencies(s["d"] // s["heads"])
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos().float(), persistent=False)
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin().float(), persistent=False)

    blocks = property(lambda self: self.model.layers)

    def forward(self, tokens, targets):
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, self.cos, self.sin)
        return self.loss(x, targets)

    def loss(self, x, targets):
        logits = self.lm_head(self.model.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


FAMILIES = {"gpt2": Gpt2, "llama": Llama}
CONV1D = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")  # (in, out) in Hugging Face's GPT-2


def load(model, path):
    weights = load_file(path)
    weights = {n: w.t().contiguous() if n.endswith(CONV1D) else w for n, w in weights.items()}
    model.load_state_dict(weights, strict=True)


def optimizer_of(model, s):
    params = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in params if p.ndim >= 2], "weight_decay": s["decay"]},
        {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=s["lr"], betas=tuple(s["betas"]), eps=s["eps"], fused=True)


def samples(tokens, s, step, rank, ranks):
    """Sample k of a step is the ctx + 1 tokens from k ctx on; ranks take equal runs of them."""
    local = s["batch"] // ranks
    first = step * s["batch"] + rank * local
    rows = np.stack([tokens[k * s["ctx"] : (k + 1) * s["ctx"] + 1] for k in range(first, first + local)])
    rows = torch.from_numpy(rows.astype(np.int64))
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def meeting_place(options):
    return os.path.abspath(options.out) + ".store"


def train(options, s):
    rank, ranks = options.rank, options.ranks
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    model = FAMILIES[s["family"]](s)
    load(model, options.weights)
    if ranks > 1:
        from torch.distributed.fsdp import fully_shard

        dist.init_process_group("gloo", init_method="file://" + meeting_place(options), rank=rank, world_size=ranks)
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    optimizer = optimizer_of(model, s)
    forward = torch.compile(model) if options.compile else model
    tokens = np.fromfile(options.data, dtype=np.uint16)
    result = {"losses": [], "grad_norms": [], "step_s": []}
    for step in range(options.steps):
        start = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = s["lr"] * min(1.0, (step + 1) / s["warmup"])
        inputs, targets = samples(tokens, s, step, rank, ranks)
        loss = forward(inputs, targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), s["clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total = loss.detach()
        if ranks > 1:
            dist.all_reduce(total)
            total /= ranks
            norm = norm.full_tensor()
        result["step_s"].append(time.perf_counter() - start)
        result["losses"].append(total.item())
        result["grad_norms"].append(norm.item())
    if rank == 0:
        result["torch"], result["threads"] = torch.__version__, torch.get_num_threads()
        with open(options.out, "w") as out:
            json.dump(result, out)
    if ranks > 1:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rank", type=int, help="of this process; left out, all are started")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    if options.rank is None:  # what torchrun would do, without a process that stays beside the ranks
        if os.path.exists(meeting_place(options)):  # of an earlier run: ranks would wait for its peers
            os.remove(meeting_place(options))
        others = [subprocess.Popen([sys.executable, *sys.argv, "--rank", str(rank)]) for rank in range(1, options.ranks)]
        options.rank = 0
    else:
        others = []
    with open(options.shape) as file:
        train(options, json.load(file))
    sys.exit(max((abs(other.wait()) for other in others), default=0))


if __name__ == "__main__":
    main()
