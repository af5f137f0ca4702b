"""Small graphs, and comparisons of a module with the reference."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from graphrelu import GReLU, functional
from graphrelu.grelu import VARIANTS

ROOT = Path(__file__).parent.parent

# Other constants than the default's, as keyword arguments.
OTHER = {"scale": 1.7, "temperature": 2.0}
SHARP = {"scale": 1.0, "temperature": 0.3}  # some weights reach their bound


def random_graph(num_nodes: int, num_edges: int, undirected: bool = False) -> Tensor:
    edge_index = torch.randint(num_nodes, (2, num_edges))
    return torch.cat([edge_index, edge_index.flip(0)], dim=1) if undirected else edge_index


def batch_of_graphs(sizes: list[int], edges_per_node: int = 3) -> tuple[Tensor, Tensor]:
    """Edge index and batch vector of random graphs of the given sizes."""
    edges, offset = [], 0
    for size in sizes:
        if size > 0:
            edges.append(random_graph(size, edges_per_node * size) + offset)
        offset += size
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return torch.cat(edges, dim=1), batch


class Calls(TorchDispatchMode):
    """Remembers the operators that are called: their names, arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        self.seen.append((function.name(), args, out))
        return out


def variant_of(letter: str, channels: int, **options: Any) -> GReLU:
    """Of the paper's ablation."""
    return GReLU(channels, **VARIANTS[letter] | options)


def opened(act: GReLU, size: float = 0.3) -> GReLU:
    """A module that has left its start: with zeros in it most of it would be untested."""
    if act.mode == "calibrated":
        with torch.no_grad():
            for name, parameter in act.named_parameters():
                if not name.startswith("node_mlp"):
                    parameter.add_(size * torch.randn_like(parameter))
    return act


def reference(
    act: GReLU,
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    batch: Tensor | None = None,
    batch_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The output and the coefficients by the equations, in the paper's order: all features are
    diffused. With the parameters and options of a module."""
    e, form = x, act._form
    batch_size = 1 if batch_size is None else batch_size
    if act.topology:
        e = diffused(x, edge_index, edge_weight, act.alpha, act.steps, act.diffusion)
    mean = functional.graph_mean(e, x.new_ones(x.size(0)), batch, batch_size)
    if act.channel_mlp is not None:
        logits = functional.channel_logits(mean, *act.channel_mlp.parameters(), form.mode)
        parameters = functional.channel_parameters(logits, act.channels, form)
    else:
        slopes = x.new_ones(act.K)
        if act.shared_slopes is not None:
            slopes = torch.tanh(act.scale * act.shared_slopes)
        slopes = slopes.view(1, 1, -1, 1).expand(batch_size, 1, -1, act.channels)
        parameters = F.pad(slopes, (0, 0, 0, 0, 0, 1))
    gamma = x.new_ones(x.size(0), 1)
    if act.node_mlp is not None:
        gamma = functional.weigh(act.node_mlp(e), form, batch, batch_size)
    alpha, beta = functional.coefficients(gamma, parameters, form.base_slopes, batch)
    return functional.piecewise_max(x, alpha, beta), torch.stack(alpha, 1), torch.stack(beta, 1)


def diffused(
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    alpha: float = 0.1,
    steps: int = 10,
    kind: str = "power",
) -> Tensor:
    r""":math:`\mathbf{E} = \mathbf{S}^{\mathrm{PPR}} \mathbf{X}`, by the equations."""
    weight = x.new_ones(edge_index.size(1)) if edge_weight is None else edge_weight.to(x.dtype)
    edges = functional.Edges(edge_index[0], edge_index[1], weight, x.size(0))
    edges = functional.normalized_adjacency(edges)
    if kind == "exact":
        return functional.exact_operator(edges, alpha) @ x
    return functional.pagerank(x, edges, alpha, steps)


def outcome(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """The output and its gradients."""
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    return [out, *torch.autograd.grad((out * weight).sum(), inputs)]


def assert_close(a: Any, b: Any, tolerance: float = 1e-10) -> None:
    """Of tensors, or of lists of tensors."""
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
