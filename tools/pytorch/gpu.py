"""Owns: the step that tools/gpu-check.sh times, in PyTorch: bf16 by autocast, torch.compile, scaled_dot_product_attention,
fused AdamW, clipping; random weights and tokens.

    python gpu.py MODEL [--micro N] [--accumulate N] [--steps N] [--whole] [--device cuda]

Prints "12345 tokens/s, PyTorch 2.11.0, micro-batch 16". A micro-batch that does not fit is halved. What is compiled is a block, once for all
of them, and the head with its loss, as torchtitan does; --whole compiles the model in one, which takes longer the more layers it has.
"""

import argparse
import statistics
import sys
import time

import torch

from train import FAMILIES, optimizer_of

RECIPE = dict(lr=3e-4, betas=[0.9, 0.95], eps=1e-8, decay=0.1)
MODELS = {
    "tiny": dict(family="gpt2", vocab=256, ctx=64, d=64, heads=2, layers=2),
    "tiny-llama": dict(family="llama", vocab=256, ctx=64, d=64, heads=4, kv_heads=2, ffn=128, layers=2),
    "gpt2": dict(family="gpt2", vocab=50257, ctx=1024, d=768, heads=12, layers=12),
    "gpt2-xl": dict(family="gpt2", vocab=50257, ctx=1024, d=1600, heads=25, layers=48),
    "llama3.2-1b": dict(family="llama", vocab=128256, ctx=8192, d=2048, heads=32, kv_heads=8, ffn=8192, layers=16),
}


def build(shape, device):
    with torch.device(device):
        model = FAMILIES[shape["family"]](shape)
    if shape["family"] == "llama":
        model.lm_head.weight = model.model.embed_tokens.weight  # as in models/llama3.2-1b.fsdp
    return model


def compiled(model, whole):
    if whole:
        return torch.compile(model)
    for block in model.blocks:
        block.compile()
    model.loss = torch.compile(model.loss)
    return model


def measure(options, shape, micro):
    device = options.device
    model = build(shape, device)
    optimizer = optimizer_of(model, dict(shape, **RECIPE))
    forward = compiled(model, options.whole)
    tokens = torch.randint(shape["vocab"], (micro, shape["ctx"] + 1), device=device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    times = []
    for _ in range(options.steps + 2):
        start = time.perf_counter()
        for _ in range(options.accumulate):
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = forward(inputs, targets)
            (loss / options.accumulate).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()  # waits for the device
        times.append(time.perf_counter() - start)
    return micro * shape["ctx"] * options.accumulate / statistics.median(times[2:])  # the first two compile


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--micro", type=int, default=16)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--whole", action="store_true", help="compile the model as a whole")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    micro = options.micro
    while micro:
        try:
            rate = measure(options, MODELS[options.model], micro)
            print(f"{rate:.0f} tokens/s, PyTorch {torch.__version__}, micro-batch {micro}")
            return
        except torch.cuda.OutOfMemoryError:
            micro //= 2
        torch.cuda.empty_cache()  # after the exception has let go of its tensors
    sys.exit("not even one sample fits")


if __name__ == "__main__":
    main()
