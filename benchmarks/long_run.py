"""Whether training stays what it is: a GCN with GReLU on a million nodes and ten million edges.

    python benchmarks/long_run.py --device cuda --steps 1000 --out benchmarks/results/long_h200.json
    python benchmarks/long_run.py --device cpu --steps 20 --out benchmarks/results/long_h200.json

The record has the losses of both devices and the memory of the GPU. Memory must not grow; losses
must be finite and alike: tests/test_readme.py. Both devices start from the same weights and data.
"""

import argparse
import json
from functools import partial
from pathlib import Path

import torch
from cases import Network, convolution
from measure import random_graph

from graphrelu import GReLU
from graphrelu.lab.record.machine import surroundings

NODES, EDGES, CHANNELS = 1_000_000, 10_000_000, 64
# Losses and memory are kept for the first steps, then at regular intervals.
FIRST, EVERY = 25, 50


def train(device: torch.device, steps: int) -> dict[str, list]:
    """The losses `[step, loss]`, and on a GPU the memory `[step, bytes, highest bytes so far]`."""
    torch.manual_seed(0)
    edge_index, x = random_graph(NODES, EDGES), torch.randn(NODES, CHANNELS)
    y = (x @ torch.randn(CHANNELS, CHANNELS)).argmax(dim=1)
    model = Network(partial(convolution, "gcn"), GReLU(CHANNELS), CHANNELS).to(device)
    edge_index, x, y = edge_index.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    losses, memory = [], []
    for step in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, edge_index), y)
        loss.backward()
        optimizer.step()
        if step < FIRST or (step + 1) % EVERY == 0:
            losses.append((step, loss.item()))
            if device.type == "cuda":
                used = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
                memory.append((step, *used))
    return {"losses": losses, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, required=True, help="the record (JSON)")
    args = parser.parse_args()
    record = json.loads(args.out.read_text()) if args.out.exists() else {}
    record[args.device.type] = surroundings(args.device) | train(args.device, args.steps)
    args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
