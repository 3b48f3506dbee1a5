"""Owns: which instructions a measured step spends its time on, and how far each is from its bound.

    top_instructions.py TRACE PEAK_FLOPS BANDWIDTH [COUNT]

TRACE is what `fsdpc run --trace` wrote. The bound of an instruction is the longer of its operations at PEAK_FLOPS and its
bytes at BANDWIDTH (both a second), by the plan's own counts. Prints a line a kind of instruction, the longest first.
"""

import json
import sys


def measured_compute(trace):
    pids = {e["pid"] for e in trace if e["ph"] == "M" and e["name"] == "process_name" and "measured" in e["args"]["name"]}
    for event in trace:
        if event["ph"] == "X" and event["pid"] in pids and event["cat"] == "compute" and "instr" in event.get("args", {}):
            yield event


def kinds(trace, peak, bandwidth):
    """kind -> [seconds, flops, bytes, seconds at the bound]"""
    found = {}
    for event in measured_compute(trace):
        args, row = event["args"], found.setdefault(event["name"].split()[0], [0.0, 0, 0, 0.0])
        flops, moved = args.get("flops", 0), args.get("bytes", 0)
        row[0] += event["dur"] * 1e-6
        row[1] += flops
        row[2] += moved
        row[3] += max(flops / peak, moved / bandwidth)
    return found


def main():
    path, peak, bandwidth = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    with open(path) as file:
        found = kinds(json.load(file)["traceEvents"], peak, bandwidth)
    total = sum(row[0] for row in found.values())
    if total <= 0:
        sys.exit(f"{path}: no measured instruction")
    order = sorted(found.items(), key=lambda item: -item[1][0])
    for kind, (seconds, flops, moved, bound) in order[: int(sys.argv[4]) if len(sys.argv) > 4 else 5]:
        rates = f"{flops / seconds * 1e-12:.0f} TFLOP/s, {moved / seconds * 1e-12:.2f} TB/s" if seconds > 0 else "-"
        print(f"{kind}: {100 * seconds / total:.1f} % of compute, {rates}, {100 * bound / seconds if seconds else 0:.0f} % of its bound")


if __name__ == "__main__":
    main()
