"""GReLU against other rectifiers and against its straightforward form, in one run.

python benchmarks/activation.py --nodes 100000 --edges 1000000 --channels 64
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import leave_start, milliseconds, peak_mebibytes, random_graph, save
from torch import Tensor
from torch_geometric.nn import APPNP

from graphrelu import GReLU, functional
from graphrelu import graph as graph_module
from graphrelu.lab.models.activations import Maxout, PReLU, ReLU
from graphrelu.lab.models.digraf import DiGRAF

# Passes over a tensor of the features' size that forward and backward cannot do without.
PASSES = {"ReLU": 5, "PReLU": 5, "GReLU": 9}
ALONE = 2.0  # seconds for what has no rival
COLUMNS = {  # `floor` is the time of the necessary passes at the bandwidth of a copy
    "forward_ms": "forward, ms",
    "forward_backward_ms": "fwd + bwd, ms",
    "peak_mib": "peak, MiB",
    "floor_ms": "floor, ms",
}


class StraightforwardGReLU(GReLU):
    """The equations in the order in which they are printed: all channels are diffused by PyG,
    and the coefficients of all nodes, segments and channels are laid out at once."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.appnp = APPNP(self.steps, self.alpha, cached=True, add_self_loops=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        assert self.channel_mlp is not None
        assert self.node_mlp is not None
        e = self.appnp(x, edge_index)
        form, channel_weights = self._form, self.channel_mlp.parameters()
        mean = functional.graph_mean(e, e.new_ones(e.size(0)))
        logits = functional.channel_logits(mean, *channel_weights, form.mode)
        parameters = functional.channel_parameters(logits, self.channels, form)
        gamma = functional.weigh(self.node_mlp(e), form)
        coefficients = functional.coefficients(gamma, parameters, form.base_slopes)
        alpha, beta = (torch.stack(own, dim=1) for own in coefficients)
        return (alpha * x.unsqueeze(1) + beta).amax(dim=1)


def measure(nodes: int, edges: int, channels: int, device: torch.device) -> dict[str, Any]:
    torch.manual_seed(0)
    x = torch.randn(nodes, channels, device=device, requires_grad=True)
    edge_index, grad = random_graph(nodes, edges, device), torch.randn_like(x)
    acts = {kind.__name__: kind(channels) for kind in (ReLU, PReLU, Maxout, DiGRAF)}
    acts |= {"GReLU, straightforward": StraightforwardGReLU(channels), "GReLU": GReLU(channels)}

    def forward(act: torch.nn.Module) -> None:
        with torch.no_grad():
            act(x, edge_index)

    def forward_backward(act: torch.nn.Module) -> None:
        x.grad = None
        act.zero_grad()
        act(x, edge_index).backward(grad)

    for act in acts.values():
        act.to(device)
        if isinstance(act, GReLU):
            leave_start(act)
    rows: dict[str, dict[str, float]] = {name: {} for name in acts}
    for column, run in (("forward_ms", forward), ("forward_backward_ms", forward_backward)):
        times = milliseconds({name: partial(run, act) for name, act in acts.items()}, device)
        for name, row in rows.items():
            row[column] = times[name]
    settings = graph_module.DiffusionSettings(0.1, 10)
    graph = (edge_index, None, nodes, torch.float, settings)

    def prepare() -> None:
        graph_module.clear_cache()
        graph_module.prepare(*graph)

    alone = {
        "copy": lambda: x.detach().clone(),  # reads one, writes one
        "prepare": prepare,
    }
    times = milliseconds(alone, device, ALONE)
    for name, act in acts.items():
        x.grad = None
        act.zero_grad()
        rows[name]["peak_mib"] = peak_mebibytes(partial(forward_backward, act), device)
        if name in PASSES:
            rows[name]["floor_ms"] = PASSES[name] * times["copy"] / 2
    memory = peak_mebibytes(alone["prepare"], device)
    rows["preparing the graph, once"] = {"forward_ms": times["prepare"], "peak_mib": memory}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000, help="directed edges")
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="where to keep the record (JSON)")
    args = parser.parse_args()
    device = torch.device(args.device)
    setting = {name: getattr(args, name) for name in ("nodes", "edges", "channels")}
    rows = measure(**setting, device=device)
    print(", ".join(f"{value:,} {name}" for name, value in setting.items()))
    print(f"{'':26}" + "".join(f"{title:>15}" for title in COLUMNS.values()))
    for name, row in rows.items():
        cells = (f"{row[column]:15.2f}" if column in row else " " * 15 for column in COLUMNS)
        print(f"{name:26}" + "".join(cells))
    setting |= {"steps": 10, "diffusion": "power"}
    save(args.out, device, {"setting": setting, "rows": rows})


if __name__ == "__main__":
    main()
