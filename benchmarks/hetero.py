"""What HeteroGReLU costs as edges, nodes or channels are doubled: forward and backward on a CPU.

    python benchmarks/hetero.py --out benchmarks/results/hetero_cpu.json

Three types of nodes, four relations. One size varies where its term dominates; the graph is merged
and prepared before, as once for a whole training. Times are CPU time of one thread, which other
work on the machine does not lengthen; the median of five.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch
from complexity import Point, Sweep, points
from measure import leave_start, power_law, save

from graphrelu import HeteroGReLU

TYPES = ("paper", "author", "venue")
RELATIONS = (
    ("author", "writes", "paper"),
    ("paper", "written_by", "author"),
    ("paper", "cites", "paper"),
    ("paper", "in", "venue"),
)
SWEEPS = (
    Sweep("edges", 1_000_000, 16_000_000, 5, nodes=1_000, channels=1),
    Sweep("nodes", 20_000, 320_000, 5, edges=10_000, channels=64),
    Sweep("channels", 128, 2_048, 5, nodes=20_000, edges=10_000),
)


def measure(point: Point) -> float:
    """Milliseconds of a forward and a backward pass."""
    count = point.nodes // len(TYPES)
    x = {name: torch.randn(count, point.channels, requires_grad=True) for name in TYPES}
    edges = {r: torch.randint(count, (2, point.edges // len(RELATIONS))) for r in RELATIONS}
    act = HeteroGReLU(dict.fromkeys(TYPES, point.channels))
    leave_start(act)
    leaves = [*x.values(), *act.parameters()]
    grads = [torch.randn_like(value) for value in x.values()]
    times = []
    for _ in range(6):
        started = time.process_time()
        torch.autograd.grad(list(act(x, edges).values()), leaves, grads)
        times.append(1e3 * (time.process_time() - started))
    return statistics.median(times[1:])  # the first call merges and prepares the graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where to keep the record (JSON)")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = []
    for sweep in SWEEPS:
        times = {point.value: measure(point) for point in points([sweep])}
        exponent, low, high = power_law(list(times), list(times.values()))
        row = {"axis": sweep.axis, "milliseconds": times, "exponent": exponent}
        rows.append(row | {"low": low, "high": high})
        print(f"{sweep.axis:9} {exponent:.2f} [{low:.2f}, {high:.2f}]", times)
    save(args.out, torch.device("cpu"), {"rows": rows})


if __name__ == "__main__":
    main()
