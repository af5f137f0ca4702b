"""GReLU against other rectifiers and against its straightforward form, in one run.

python benchmarks/activation.py --nodes 100000 --edges 1000000 --channels 64
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import (
    milliseconds,
    milliseconds_in_turn,
    peak_mebibytes,
    replayed_milliseconds,
    save,
)
from torch import Tensor
from torch_geometric.nn import APPNP

from graphrelu import GReLU, functional
from graphrelu import graph as graph_module
from graphrelu.lab.models.activations import Maxout, PReLU, ReLU
from graphrelu.lab.models.digraf import DiGRAF
from graphrelu.lab.record.machine import surroundings


class StraightforwardGReLU(GReLU):
    """The equations in the order in which they are printed: all channels are diffused by PyG,
    and the coefficients of all nodes, segments and channels are laid out at once."""

    def __init__(self, channels: int, **kwargs: Any) -> None:
        super().__init__(channels, **kwargs)
        self.appnp = APPNP(self.steps, self.alpha, cached=True, add_self_loops=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        assert self.channel_mlp is not None
        assert self.node_mlp is not None
        e = self.appnp(x, edge_index)
        form = self._form
        logits = self.channel_mlp(functional.graph_mean(e, e.new_ones(e.size(0))))
        parameters = functional.channel_parameters(logits, self.channels, form)
        gamma = functional.weigh(self.node_mlp(e), form)
        alpha, beta = functional.coefficients(gamma, parameters, form.base_slopes)
        return (alpha * x.unsqueeze(1) + beta).amax(dim=1)


def random_graph(num_nodes: int, num_edges: int, max_degree: int) -> Tensor:
    """An undirected graph with `num_edges` directed edges; uniform, or of power-law degrees."""
    if max_degree:
        rank = torch.arange(1, num_nodes + 1, dtype=torch.double)
        weight = rank.pow(-0.7)
        weight = (weight / weight.sum() * num_edges).clamp(max=max_degree)
        ends = torch.searchsorted(weight.cumsum(0), torch.rand(num_edges) * weight.sum())
        ends = torch.randperm(num_nodes)[ends.clamp(max=num_nodes - 1)].view(2, -1)
    else:
        ends = torch.randint(num_nodes, (2, num_edges // 2))
    return torch.cat([ends, ends.flip(0)], dim=1)


def measure(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    device = torch.device(args.device)
    torch.manual_seed(0)
    dtype = getattr(torch, args.dtype)
    x = torch.randn(args.nodes, args.channels, device=device, dtype=dtype, requires_grad=True)
    edge_index = random_graph(args.nodes, args.edges, args.max_degree).to(device)
    grad = torch.randn_like(x)
    options = {"K": args.K, "steps": args.steps}
    acts = {
        "ReLU": ReLU(args.channels),
        "PReLU": PReLU(args.channels),
        "Maxout": Maxout(args.channels),
        "DiGRAF": DiGRAF(args.channels),
        "GReLU, straightforward": StraightforwardGReLU(args.channels, **options),
        "GReLU": GReLU(args.channels, diffusion=args.diffusion, **options),
    }
    if not args.straightforward:
        del acts["GReLU, straightforward"]

    def forward(act: torch.nn.Module) -> None:
        with torch.no_grad():
            act(x, edge_index)

    def forward_backward(act: torch.nn.Module) -> None:
        x.grad = None
        act.zero_grad()
        act(x, edge_index).backward(grad)

    for act in acts.values():
        act.to(device, dtype)
        if isinstance(act, GReLU):
            leave_start(act)
    rows: dict[str, dict[str, float]] = {name: {} for name in acts}
    for column, run in (("forward_ms", forward), ("forward_backward_ms", forward_backward)):
        runs = {name: partial(run, act) for name, act in acts.items()}
        times = milliseconds_in_turn(runs, device)
        for name, row in rows.items():
            row[column] = times[name]
    copy = milliseconds(lambda: x.detach().clone(), device)  # reads one, writes one
    for name, act in acts.items():
        x.grad = None
        act.zero_grad()
        run_both = partial(forward_backward, act)
        rows[name]["peak_mib"] = peak_mebibytes(run_both, device)
        if name in PASSES:
            rows[name]["floor_ms"] = PASSES[name] * copy / 2
        if device.type == "cuda":
            rows[name]["replayed_ms"] = replayed_milliseconds(run_both, device)
            x.grad = None
    if device.type == "cuda":
        for kind in {dtype, torch.bfloat16}:
            name = f"GReLU, its passes over {str(kind).removeprefix('torch.')} features"
            rows[name] = {"replayed_ms": passes_ms(x.detach().to(kind), edge_index, args.K)}

    settings = graph_module.DiffusionSettings(0.1, args.steps, args.diffusion, False)

    def prepare() -> None:
        graph_module.clear_cache()
        graph_module.prepare(edge_index, None, args.nodes, torch.float, settings, None, False)

    rows["preparing the graph, once"] = {
        "forward_ms": milliseconds(prepare, device),
        "peak_mib": peak_mebibytes(prepare, device),
    }
    return rows


def leave_start(act: GReLU) -> None:
    """As after some training; zeros might take other ways through the processor."""
    assert act.channel_mlp is not None
    for parameter in act.channel_mlp.parameters():
        torch.nn.init.normal_(parameter, std=0.1)


def passes_ms(x: Tensor, edge_index: Tensor, K: int) -> float:
    """Forward and backward without the diffusion, the part whose time depends on the type of x;
    parameters are in float32, as they are under autocast."""
    act = GReLU(x.size(1), K=K, topology=False).to(x.device)
    leave_start(act)
    grad = torch.randn_like(x)
    x = x.clone().requires_grad_()

    def forward_backward() -> None:
        x.grad = None
        act.zero_grad()
        act(x, edge_index).backward(grad)

    return replayed_milliseconds(forward_backward, x.device)


# Passes over a tensor of the features' size that forward and backward cannot do without.
PASSES = {"ReLU": 5, "PReLU": 5, "GReLU": 9}


def show(rows: dict[str, dict[str, float]]) -> None:
    """The table; `replayed` is forward and backward from a CUDA graph, without the host's time, and
    `floor` the time of the necessary passes at the bandwidth of a copy."""
    columns = ("forward_ms", "forward_backward_ms", "replayed_ms", "peak_mib", "floor_ms")
    header = ("forward, ms", "fwd + bwd, ms", "replayed, ms", "peak, MiB", "floor, ms")
    print(f"{'':42}" + "".join(f"{title:>15}" for title in header) + f"{'x Maxout':>10}")
    maxout = rows["Maxout"]["forward_backward_ms"]
    for name, row in rows.items():
        cells = "".join(f"{row[c]:15.2f}" if c in row else " " * 15 for c in columns)
        ratio = row.get("forward_backward_ms")
        print(f"{name:42}{cells}" + (f"{ratio / maxout:10.2f}" if ratio else ""))
    if "GReLU, straightforward" not in rows:
        return
    ours, plain = rows["GReLU"], rows["GReLU, straightforward"]
    print(
        f"\nGReLU is {plain['forward_backward_ms'] / ours['forward_backward_ms']:.1f} times faster "
        f"than its straightforward form, at {ours['peak_mib'] / plain['peak_mib']:.2f} of the "
        "memory."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000, help="directed edges")
    parser.add_argument("--max-degree", type=int, default=0, help="of a power law; 0: uniform")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--straightforward", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--K", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--diffusion", choices=("power", "chebyshev"), default="power")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="where to keep the record (JSON)")
    args = parser.parse_args()
    print(
        f"{args.nodes:,} nodes, {args.edges:,} directed edges, {args.channels} channels, "
        f"K = {args.K}, {args.steps} {args.diffusion} steps, {args.dtype}\n"
    )
    rows = measure(args)
    show(rows)
    if args.out is not None:
        setting = {key: value for key, value in vars(args).items() if key not in ("out", "device")}
        save(
            args.out, {"setting": setting, **surroundings(torch.device(args.device)), "rows": rows}
        )


if __name__ == "__main__":
    main()
