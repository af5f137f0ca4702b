"""What an activation costs inside a GCN's training step, beside GAT's attention, in one run.

python benchmarks/step.py --nodes 100000 --edges 1000000
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from activation import random_graph
from measure import milliseconds_in_turn, save
from torch import Tensor
from torch_geometric.nn import GATConv, GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_torch_csr_tensor

from graphrelu import GReLU
from graphrelu.lab.models.activations import ELU, Maxout, PReLU, ReLU
from graphrelu.lab.record.machine import surroundings


class GCN(torch.nn.Module):
    def __init__(self, channels: int, act: torch.nn.Module, normalize: bool) -> None:
        super().__init__()
        self.conv1 = GCNConv(channels, channels, cached=True, normalize=normalize)
        self.act = act
        self.conv2 = GCNConv(channels, channels, cached=True, normalize=normalize)

    def forward(self, x: Tensor, adjacency: Tensor, edge_index: Tensor) -> Tensor:
        x = self.act(self.conv1(x, adjacency), edge_index)
        return self.conv2(x, adjacency)


class GAT(torch.nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = GATConv(channels, channels // 8, heads=8)
        self.conv2 = GATConv(channels, channels // 8, heads=8)

    def forward(self, x: Tensor, adjacency: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


def training_step(model: torch.nn.Module, inputs: tuple[Any, ...], y: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(*inputs), y).backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000, help="directed edges")
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--diffusion", choices=("power", "chebyshev"), default="power")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="where to keep the record (JSON)")
    args = parser.parse_args()

    device, channels = torch.device(args.device), args.channels
    torch.manual_seed(0)
    edge_index = random_graph(args.nodes, args.edges, 0).to(device)
    weighted, weight = gcn_norm(edge_index, None, args.nodes)
    adj_t = to_torch_csr_tensor(weighted.flip(0), weight, size=args.nodes)
    x = torch.randn(args.nodes, channels, device=device)
    y = torch.randint(channels, (args.nodes,), device=device)
    grelu = {"diffusion": args.diffusion, "steps": args.steps}
    acts = {
        "ReLU": lambda: ReLU(channels),
        "PReLU": lambda: PReLU(channels),
        "ELU": lambda: ELU(channels),
        "Maxout": lambda: Maxout(channels),
        "GReLU": lambda: GReLU(channels, **grelu),
    }
    rows: dict[str, dict[str, float]] = {}
    for form, adjacency in (("edge_index", edge_index), ("csr", adj_t)):
        has_edges = form == "edge_index"
        models: dict[str, torch.nn.Module] = {
            name: GCN(channels, act(), normalize=has_edges) for name, act in acts.items()
        }
        if has_edges:
            models["GAT, 8 heads"] = GAT(channels)
        inputs = (x, adjacency, edge_index)
        steps = {name: training_step(m.to(device), inputs, y) for name, m in models.items()}
        rows[form] = milliseconds_in_turn(steps, device)
    print(f"{args.nodes:,} nodes, {args.edges:,} directed edges, {channels} channels: ms a step\n")
    print(f"{'':16}{'edge_index':>12}{'x ReLU':>8}{'CSR':>12}{'x ReLU':>8}")
    for name in rows["edge_index"]:
        cells = ""
        for form in rows:
            if name in rows[form]:
                time = rows[form][name]
                cells += f"{time:12.2f}{time / rows[form]['ReLU']:8.2f}"
        print(f"{name:16}{cells}")
    if args.out is not None:
        setting = {key: value for key, value in vars(args).items() if key not in ("out", "device")}
        save(args.out, {"setting": setting, **surroundings(device), "milliseconds": rows})


if __name__ == "__main__":
    main()
