r"""The equations of GReLU in plain torch: the reference that every fast path is tested against.

One function per equation of `"Graph-adaptive Rectified Linear Unit for Graph Neural Networks"
<https://doi.org/10.1145/3485447.3512159>`_, under its symbols: :math:`\mathbf{e}_n` are diffused
features, :math:`\alpha^k_c, \beta^k_c` the channel-wise and :math:`\gamma_n` the node-wise
parameters. :func:`grelu` puts them together. Nothing here is fast, and everything is
differentiable.

Shapes: `N` nodes, `C` channels, `K` segments, `B` graphs.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from graphrelu.calibration import DEFAULT, Calibration
from graphrelu.diffusion import normalized_adjacency, pagerank
from graphrelu.graph import as_edges

MODES = ("calibrated", "paper")
# Of the mean square: a variance below it is rounding.
SAME = 1e-8

MLP = Callable[[Tensor], Tensor]


class Statistics(Protocol):
    """What replaces the graph-wide quantities of a batch; see :mod:`graphrelu.running`."""

    def __call__(
        self, mean: Tensor | None, logits: Tensor | None, num_nodes: int, update: bool
    ) -> tuple[Tensor | None, Tensor | None]: ...

    def smoothness(self, local: Tensor, averaged: Tensor, update: bool) -> Tensor: ...


def diffuse(
    x: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None = None,
    alpha: float = 0.1,
    steps: int = 10,
    diffusion: str = "power",
    add_self_loops: bool = False,
) -> Tensor:
    r""":math:`\mathbf{E} = \mathbf{S}^{\mathrm{PPR}} \mathbf{X}`, shape `[N, C]`."""
    edges = as_edges(edge_index, edge_weight, x.size(0), x.dtype)
    return pagerank(x, normalized_adjacency(edges, add_self_loops), alpha, steps, diffusion)


def surroundings(e: Tensor, row_mass: Tensor) -> Tensor:
    r""":math:`\bar{\mathbf{x}}_n = \mathbf{e}_n / a_n`, the mean of the features around each node,
    `[N, C]`; `row_mass` is :math:`\mathbf{a} = \mathbf{S}^{\mathrm{PPR}} \mathbf{1}`, `[N, 1]`.
    Calibrated form only."""
    return e / row_mass


def graph_mean(e: Tensor, batch: Tensor | None = None, batch_size: int = 1) -> Tensor:
    r""":math:`\bar{\mathbf{e}} = \frac{1}{N} \sum_n \mathbf{e}_n` of each graph, `[B, C]`."""
    if batch is None:
        return e.sum(dim=0, keepdim=True) / max(1, e.size(0))
    return scatter(e, batch, dim=0, dim_size=batch_size, reduce="mean")


def channel_parameters(
    mean: Tensor, mlp: MLP, K: int, bias: bool = True, calibration: Calibration | None = None
) -> tuple[Tensor, Tensor]:
    r""":math:`\mathbf{P} = \tanh(\mathrm{MLP}(\bar{\mathbf{e}}))`, slopes and intercepts.

    Each is `[B, K, C]`; without `bias` the intercepts are zero. The calibrated form may have a
    scale inside of the tanh, and the first segment's slopes relative to their mean.
    """
    shape = (mean.size(0), 2 if bias else 1, K, mean.size(1))
    scale = 1.0 if calibration is None else calibration.channel_scale
    parameters = torch.tanh(scale * mlp(mean)).view(shape)
    slopes = parameters[:, 0]
    intercepts = parameters[:, 1] if bias else torch.zeros_like(slopes)
    if calibration is not None and calibration.centred:
        slopes = torch.cat([centred(slopes[:, :1]), slopes[:, 1:]], dim=1)
    return slopes, intercepts


def centred(slopes: Tensor) -> Tensor:
    r""":math:`\alpha_c - \frac{1}{C} \sum_c \alpha_c`: which channels are to count for more than
    others, and not how large all of them are. Calibrated form only."""
    return slopes - slopes.mean(dim=-1, keepdim=True)


def _largest(values: Tensor, batch: Tensor | None, batch_size: int) -> Tensor:
    """Of each graph and column, `[B, W]`."""
    if batch is not None:
        return scatter(values, batch, dim=0, dim_size=batch_size, reduce="max")
    return values.amax(dim=0, keepdim=True) if values.size(0) > 0 else values.new_zeros(1, 1)


def node_parameters(logits: Tensor, batch: Tensor | None = None, batch_size: int = 1) -> Tensor:
    r""":math:`\gamma_n = \mathrm{softmax}_n(\mathrm{MLP}(\mathbf{e}_n))` within each graph, from
    the MLP's outputs: `[N, 1]`, or `[N, K]` where each segment has a weight of its own."""
    largest = _largest(logits.detach(), batch, batch_size)
    if batch is None:
        # As printed; torch.softmax leaves a long column to a single block of a GPU.
        weight = torch.exp(logits - largest)
        return weight / weight.sum(dim=0)
    weight = torch.exp(logits - largest[batch])
    # One by one, in float32, the nodes of a large graph would not add up.
    total = scatter(weight.double(), batch, dim=0, dim_size=batch_size, reduce="sum")
    return weight / total.to(weight.dtype)[batch]


def smoothness(
    local: Tensor, averaged: Tensor, batch: Tensor | None = None, batch_size: int = 1
) -> Tensor:
    r""":math:`\rho = \min(1, \mathrm{Var}_n(\mathrm{MLP}(\bar{\mathbf{x}}_n)) /
    \mathrm{Var}_n(\mathrm{MLP}(\mathbf{x}_n)))` within each graph, `[B, 1]` or `[B, K]`: how much
    of what differs between nodes is left in the means around them. Calibrated form only."""
    unit = _largest(local.detach().abs(), batch, batch_size)
    unit = torch.where(unit > 0, unit, torch.ones_like(unit))  # squares of 1e30 would overflow
    if batch is not None:
        unit = unit[batch]
    variances = []
    for values in (averaged / unit, local / unit):
        mean = graph_mean(values, batch, batch_size)
        centred = values - (mean if batch is None else mean[batch])
        variances.append(graph_mean(centred.square(), batch, batch_size))
    # Nodes that differ by rounding alone are the same.
    noise = SAME * graph_mean((local / unit).square(), batch, batch_size)
    return smoothness_ratio(variances[0], variances[1] + noise)


def smoothness_ratio(averaged: Tensor, local: Tensor) -> Tensor:
    r""":math:`\rho` from the two variances; zero where there is nothing to see."""
    return (averaged / torch.where(local > 0, local, torch.ones_like(local))).clamp(max=1.0)


def smoothed(
    logits: Tensor,
    rho: Tensor,
    batch: Tensor | None = None,
    calibration: Calibration = DEFAULT,
) -> Tensor:
    r""":math:`\rho^p \, \mathrm{MLP} (\bar{\mathbf{x}}_n)`, with the smoothness of each graph."""
    rho = rho.pow(int(calibration.smooth))
    return logits * (rho if batch is None else rho[batch])


def calibrated_node_parameters(
    logits: Tensor,
    batch: Tensor | None = None,
    batch_size: int = 1,
    calibration: Calibration = DEFAULT,
) -> Tensor:
    r""":math:`\tilde\gamma_n = \min(m, w N \, \mathrm{softmax}_n(\mathrm{MLP}(\mathbf{e}_n) /
    \tau))`: a weight that does not vanish as the graph grows."""
    logits = logits / calibration.temperature
    if calibration.node_weights == "sigmoid":
        return (2 * calibration.gamma_scale * logits.sigmoid()).clamp(max=calibration.gamma_max)
    gamma = node_parameters(logits, batch, batch_size)
    if batch is None:
        gamma = logits.size(0) * gamma
    else:
        ones = torch.ones_like(batch)
        count = scatter(ones, batch, dim=0, dim_size=batch_size, reduce="sum")
        gamma = count[batch].view(-1, 1) * gamma
    return (gamma * calibration.gamma_scale).clamp(max=calibration.gamma_max)


def bounded_gate(gate: Tensor, calibration: Calibration = DEFAULT) -> Tensor:
    r""":math:`\frac{h}{s} \tanh(\frac{s}{h} g)`: the gate, kept from growing without end."""
    if calibration.gate_max is None:
        return gate
    bound = calibration.gate_max / calibration.gate_scale
    return bound * torch.tanh(gate / bound)


def calibrated_channel_parameters(
    slopes: Tensor,
    intercepts: Tensor,
    gate: Tensor | None,
    calibration: Calibration = DEFAULT,
    rho: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r""":math:`s g r_k \, \alpha^k_c` and :math:`s g b \, \beta^k_c`: how far a node of weight one
    moves away from ReLU; without a gate :math:`g` is one. The smoothness, if it is to scale them,
    or all but the first segment's slopes, does so as a number: it is not to be learned for their
    sake."""
    scale = calibration.gate_scale if gate is None else calibration.gate_scale * gate
    first, rest = slopes[:, :1], slopes[:, 1:]
    shift = calibration.intercept_scale * intercepts
    if calibration.rest_smooth and rho is not None:
        factor = rho.detach().pow(int(calibration.smooth)).unsqueeze(-1)
        rest = rest * (factor if rho.size(1) == 1 else factor[:, 1:])
        shift = shift * factor
        if calibration.first_smooth:
            first = first * factor[:, :1]
    slopes = torch.cat([first, calibration.rest_scale * rest], dim=1)
    return scale * slopes, scale * shift


def log_sum_exp(logits: Tensor, mode: str, calibration: Calibration = DEFAULT) -> Tensor:
    r""":math:`\log \sum_n \exp(z_n)`, calibrated :math:`\log \sum_n \exp(z_n / \tau)`: the
    denominator of the node softmax, `[1, 1]` or `[1, K]`."""
    logits = logits if mode == "paper" else logits / calibration.temperature
    return logits.logsumexp(dim=0, keepdim=True)


def normalized_node_parameters(
    logits: Tensor, log_normaliser: Tensor, mode: str, calibration: Calibration = DEFAULT
) -> Tensor:
    r""":math:`\gamma_n = \exp(z_n) / \sum_m \exp(z_m)`, where the sum over the nodes is given, or
    :math:`\tilde\gamma_n = \min(m, w \exp(z_n / \tau) / \mathrm{mean}_m \exp(z_m / \tau))`, where
    the mean is; both as logarithms.

    With an estimate, also the printed :math:`\gamma_n` could exceed 1, and is kept from it.
    """
    if mode == "paper":
        return torch.exp((logits - log_normaliser).clamp(max=0.0))
    log_gamma = logits / calibration.temperature - log_normaliser
    log_gamma = log_gamma + math.log(calibration.gamma_scale)
    return torch.exp(log_gamma.clamp(max=math.log(calibration.gamma_max)))


def base_slopes(K: int, mode: str, negative_slope: float = 0.0) -> tuple[float, ...]:
    r"""The slope of each segment before anything is learned.

    The printed form has none. The calibrated form starts as :math:`\max(x, s x)`: ReLU where
    the negative slope `s` is zero. Segments beyond the second repeat it, so that any `K` starts
    as the same function.
    """
    if mode == "paper":
        return (0.0,) * K
    return (1.0,) + (float(negative_slope),) * (K - 1)


def coefficients(
    gamma: Tensor,
    slopes: Tensor,
    intercepts: Tensor,
    base: tuple[float, ...],
    batch: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r""":math:`\alpha^k_{nc} = \gamma_n \alpha^k_c` and :math:`\beta^k_{nc} = \gamma_n \beta^k_c`,
    on top of the base slopes; each `[N, K, C]`."""
    gamma = gamma.unsqueeze(-1)
    if batch is not None:
        slopes, intercepts = slopes[batch], intercepts[batch]
    return gamma.new_tensor(base).view(1, -1, 1) + gamma * slopes, gamma * intercepts


def piecewise_max(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    r""":math:`\max_{1 \leq k \leq K} \{ \alpha^k_{nc} x_{nc} + \beta^k_{nc} \}`, `[N, C]`.

    A tie goes to the lowest `k`, and so does its gradient.
    """
    segments = alpha * x.unsqueeze(1) + beta
    out = segments[:, 0]
    for k in range(1, segments.size(1)):
        out = torch.where(segments[:, k] > out, segments[:, k], out)
    return out


def grelu(
    x: Tensor,
    edge_index: Any,
    channel_mlp: MLP | None,
    node_mlp: MLP | None,
    gate: Tensor | None = None,
    *,
    edge_weight: Tensor | None = None,
    batch: Tensor | None = None,
    batch_size: int = 1,
    K: int = 2,
    alpha: float = 0.1,
    steps: int = 10,
    diffusion: str = "power",
    mode: str = "calibrated",
    topology: bool = True,
    bias: bool = True,
    negative_slope: float = 0.0,
    add_self_loops: bool = False,
    statistics: Statistics | None = None,
    calibration: Calibration = DEFAULT,
) -> tuple[Tensor, Tensor, Tensor]:
    """GReLU step by step; returns the output and the coefficients it applied.

    The printed form is `mode="paper"`, with no `gate`. Without `node_mlp` all nodes share the
    channel-wise parameters (variant F); without `channel_mlp` all channels share the node-wise
    ones (variant G). With `statistics`, mean, smoothness and normaliser are not those of `x` alone.
    """
    e = x
    graph = (edge_index, edge_weight, alpha, steps, diffusion, add_self_loops)
    if topology:
        e = diffuse(x, *graph)

    mean = None if channel_mlp is None else graph_mean(e, batch, batch_size)
    logits, rho = None if node_mlp is None else node_mlp(e), None
    if node_mlp is not None and topology and mode == "calibrated" and calibration.smooth:
        row_mass = diffuse(x.new_ones(x.size(0), 1), *graph)
        local, logits = node_mlp(x), node_mlp(surroundings(e, row_mass))
        if statistics is None:
            rho = smoothness(local, logits, batch, batch_size)
        else:
            rho = statistics.smoothness(local, logits, update=True)
        logits = smoothed(logits, rho, batch, calibration)
    log_normaliser = None
    if statistics is not None:
        mean, log_normaliser = statistics(mean, logits, x.size(0), update=True)

    if channel_mlp is None or mean is None:
        slopes = x.new_ones(batch_size, K, x.size(1))
        intercepts = torch.zeros_like(slopes)
    else:
        constants = None if mode == "paper" else calibration
        slopes, intercepts = channel_parameters(mean, channel_mlp, K, bias, constants)
    if logits is None:
        gamma = x.new_ones(x.size(0), 1)
    elif log_normaliser is not None:
        gamma = normalized_node_parameters(logits, log_normaliser, mode, calibration)
    elif mode == "paper":
        gamma = node_parameters(logits, batch, batch_size)
    else:
        gamma = calibrated_node_parameters(logits, batch, batch_size, calibration)
    if mode == "calibrated":
        gate = None if gate is None else bounded_gate(gate, calibration)
        slopes, intercepts = calibrated_channel_parameters(
            slopes, intercepts, gate, calibration, rho
        )

    a, b = coefficients(gamma, slopes, intercepts, base_slopes(K, mode, negative_slope), batch)
    return piecewise_max(x, a, b), a, b
