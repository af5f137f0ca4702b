r"""The equations of GReLU in plain torch: the reference that every fast path is tested against.

One function per equation of `"Graph-adaptive Rectified Linear Unit for Graph Neural Networks"
<https://doi.org/10.1145/3485447.3512159>`_, under its symbols: :math:`\mathbf{e}_n` are diffused
features, :math:`\alpha^k_c, \beta^k_c` the channel-wise and :math:`\gamma_n` the node-wise
parameters. :func:`hyperfunction` and :func:`apply` put them together. Everything is differentiable.

The diffusion :math:`\mathbf{S} = \alpha (\mathbf{I} - (1 - \alpha) \mathbf{A})^{-1}`, with
:math:`\mathbf{A}` the normalised adjacency, is personalised PageRank.

Three functions have a fast twin in :mod:`graphrelu.ops`: :func:`project` and :func:`apply`, of the
same signature, and :func:`pagerank`, which is the diffusion there. The environment variable
`GRAPHRELU_BACKEND=reference` selects those here instead, for debugging.

Shapes: `N` nodes, `C` channels, `K` segments, `B` graphs. `...` are replicas, if there are any:
together with a batch of graphs there are none. What several functions take:

- `x`: features, `[..., N, C]`;
- `mass`: :math:`m = \mathbf{S}^\top \mathbf{1}`, `[..., N]`, in the type of the computation;
- `gamma`: :math:`\gamma_n`, `[..., N, 1]`, or `[..., N, K]` with a weight for each segment;
- `parameters`: slopes and intercepts of the channels, `[..., B, 2, K, C]`;
- `base`: the `K` base slopes;
- `batch`: the graph of each node, `[N]`; none where `B`, the `batch_size`, is one.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import scatter

MODES = ("calibrated", "paper")
DIFFUSIONS = ("power", "exact")

# A GPU's softmax gives a row to a single block of threads: longer ones are written out instead.
LONG_COLUMN = 1 << 16


class Form(NamedTuple):
    """What, besides the parameters and the graph, determines the function; the arguments of
    :class:`~graphrelu.GReLU` say what each is for."""

    K: int = 2
    mode: str = "calibrated"
    bias: bool = True
    negative_slope: float = 0.0
    scale: float = 8.0
    temperature: float = 3.0
    dropout: float = 0.0
    gamma_max: float = 3.0  # m, the largest weight of a node; the mean is 1

    @property
    def base_slopes(self) -> tuple[float, ...]:
        """The slopes of a fresh module: those of ReLU, LeakyReLU for a `negative_slope`, in
        calibrated mode; none in the paper's. Segments beyond the second repeat it, so that any `K`
        starts as the same function."""
        if self.mode == "paper":
            return (0.0,) * self.K
        return (1.0,) + (float(self.negative_slope),) * (self.K - 1)


DEFAULT = Form()


class Weights(NamedTuple):
    """What is learned. The channel MLP has no weight where all channels are alike, and nothing in
    the printed form of that."""

    node: Tensor | None  # of the node MLP, `[H, C]`; none where all nodes are alike
    channel: Tensor | None
    bias: Tensor | None  # of the channel MLP


class Edges(NamedTuple):
    """A weighted edge list; messages flow from ``source`` to ``target``."""

    source: Tensor
    target: Tensor
    weight: Tensor
    num_nodes: int

    def transposed(self) -> "Edges":
        return Edges(self.target, self.source, self.weight, self.num_nodes)


def normalized_adjacency(edges: Edges) -> Edges:
    r""":math:`\mathbf{D}^{-1/2} \mathbf{A} \mathbf{D}^{-1/2}`, with PyG's (incoming) degree.

    A node of degree zero keeps an empty row. Every shape is known beforehand, so that the
    function compiles.
    """
    source, target, weight, num_nodes = edges
    # In float32 a sum of ones stops growing at 2^24, and tiny weights have no inverse.
    wide = widened(weight)
    degree = scatter(wide, target, dim=0, dim_size=num_nodes, reduce="sum")
    isolated = degree == 0
    scale = degree.masked_fill(isolated, 1.0).rsqrt().masked_fill(isolated, 0.0)
    # The product of the two scales commutes: a symmetric graph stays symmetric bit for bit.
    normalized = (wide * (scale[source] * scale[target])).to(weight.dtype)
    return Edges(source, target, normalized, num_nodes)


def widened(x: Tensor) -> Tensor:
    """In float64, where the device has it: Apple's GPUs do not."""
    return x if x.device.type == "mps" else x.double()


def propagate(
    previous: Tensor, edges: Edges, current: Tensor, *, beta: float, alpha: float
) -> Tensor:
    """`beta * previous + alpha * A @ current`, as :func:`torch.addmm`: every target sums its
    weighted sources."""
    message = edges.weight.view(-1, 1) * current[edges.source]
    product = scatter(message, edges.target, dim=0, dim_size=edges.num_nodes, reduce="sum")
    return alpha * product + beta * previous


def pagerank(
    x: Tensor, matrix: Any, alpha: float, steps: int, add_product: Callable[..., Tensor] = propagate
) -> Tensor:
    """The diffusion by power iteration, as PyG's :class:`APPNP` defines it.

    Args:
        x: `[N, F]`, every column of which is diffused.
        matrix: `A`, in the form that `add_product` takes.
        alpha: The teleport probability.
        steps: The number of products with `A`.
        add_product: :func:`propagate`, or a fast path with the arguments of :func:`torch.addmm`.
    """
    out = x
    for _ in range(steps):
        out = add_product(x, matrix, out, beta=float(alpha), alpha=1.0 - alpha)
    return out


def exact_operator(edges: Edges, alpha: float) -> Tensor:
    """The printed inverse as a dense matrix."""
    dense = edges.weight.new_zeros(edges.num_nodes, edges.num_nodes)
    dense = dense.index_put((edges.target, edges.source), edges.weight, accumulate=True)
    identity = torch.eye(edges.num_nodes, dtype=dense.dtype, device=dense.device)
    return alpha * torch.linalg.inv(identity - (1 - alpha) * dense)


def project(
    x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None = None, batch_size: int = 1
) -> tuple[Tensor, Tensor]:
    r"""What the two blocks see of the features, in the precision of `weight`, the node MLP's
    `[..., H, C]`: its outputs `[..., N, H]`, still to be diffused, and :math:`\bar{\mathbf{e}}`,
    `[..., B, C]`."""
    x = x.to(weight.dtype)
    return x @ weight.mT, graph_mean(x, mass, batch, batch_size)


def graph_mean(x: Tensor, mass: Tensor, batch: Tensor | None = None, batch_size: int = 1) -> Tensor:
    r""":math:`\bar{\mathbf{e}} = \frac{1}{N} \sum_n \mathbf{e}_n = \frac{1}{N} \sum_n m_n
    \mathbf{x}_n` of each graph, `[..., B, C]`."""
    if batch is None:
        return mass.unsqueeze(-2) @ x / max(1, x.size(-2))
    total = graph_sum(mass.unsqueeze(-1) * x, batch, batch_size)
    return total / nodes_per_graph(batch, batch_size).clamp(min=1).unsqueeze(-1)


def graph_sum(x: Tensor, batch: Tensor, batch_size: int) -> Tensor:
    """The sum of `x` `[N, C]` over the nodes of each graph, `[B, C]`."""
    if not x.is_cuda:
        return scatter(x, batch, dim=0, dim_size=batch_size, reduce="sum")
    # Here scatter would add in any order.
    return x.new_zeros(batch_size, x.size(1)).index_put((batch,), x, accumulate=True)


def nodes_per_graph(batch: Tensor, batch_size: int) -> Tensor:
    return graph_sum(torch.ones_like(batch).unsqueeze(-1), batch, batch_size).squeeze(-1)


def channel_logits(mean: Tensor, weight: Tensor | None, bias: Tensor, mode: str) -> Tensor:
    r""":math:`\mathrm{MLP}(\bar{\mathbf{e}})`, `[B, rows * C]`; without a weight the bias alone.
    Calibrated :math:`\mathbf{w} \odot \bar{\mathbf{e}} + \mathbf{c}`: each output sees one channel,
    by a weight and a bias of `[rows, C]`."""
    if weight is None:
        return bias.expand(mean.size(0), -1)
    if mode == "paper":
        return F.linear(mean, weight, bias)
    return torch.addcmul(bias, weight, mean.unsqueeze(1)).flatten(1)


def channel_parameters(logits: Tensor, channels: int, form: Form) -> Tensor:
    r""":math:`\mathbf{P} = \tanh(\mathrm{MLP}(\bar{\mathbf{e}}))`, slopes and intercepts, from the
    MLP's outputs; calibrated :math:`\tanh(s \, \mathrm{MLP}(\bar{\mathbf{e}}))`: `[B, 2, K, C]`.
    """
    if form.mode == "calibrated":
        logits = form.scale * logits
    both = 2 if form.bias else 1
    parameters = torch.tanh(logits).view(logits.size(0), both, form.K, channels)
    return parameters if form.bias else F.pad(parameters, (0, 0, 0, 0, 0, 1))


def node_parameters(logits: Tensor, batch: Tensor | None = None, batch_size: int = 1) -> Tensor:
    r""":math:`\gamma_n = \mathrm{softmax}_n(\mathrm{MLP}(\mathbf{e}_n))` within each graph, from
    the MLP's outputs: `[..., N, 1]`, or `[..., N, K]` with a weight for each segment."""
    if batch is None:
        if not logits.is_cuda or logits.size(-2) <= LONG_COLUMN:
            return torch.softmax(logits.mT, dim=-1).mT  # a row is faster than a column
        weight = torch.exp(logits - logits.detach().amax(dim=-2, keepdim=True))
        return weight / weight.sum(dim=-2, keepdim=True)
    largest = scatter(logits.detach(), batch, dim=0, dim_size=batch_size, reduce="max")
    weight = torch.exp(logits - largest[batch])
    # Summed one by one in float32, the weights of a large graph would lose precision.
    sums = graph_sum(widened(weight), batch, batch_size)
    return weight / sums.to(weight.dtype)[batch]


def weigh(logits: Tensor, form: Form, batch: Tensor | None = None, batch_size: int = 1) -> Tensor:
    r""":math:`\gamma_n`; calibrated :math:`\tilde\gamma_n = \min(m, N \,
    \mathrm{softmax}_n(\mathrm{MLP}(\mathbf{e}_n) / T))`, a weight that is 1 on average and does
    not vanish as the graph grows."""
    if form.mode == "paper":
        return node_parameters(logits, batch, batch_size)
    gamma = node_parameters(logits / form.temperature, batch, batch_size)
    if batch is None:
        gamma = logits.size(-2) * gamma
    else:
        gamma = nodes_per_graph(batch, batch_size)[batch].unsqueeze(-1) * gamma
    return gamma.clamp(max=form.gamma_max)


class Kept(NamedTuple):
    """What dropout leaves: nodes `[N, 1]` and channels `[C]`; the others are plain ReLU."""

    nodes: Tensor
    channels: Tensor


def kept(like: Tensor, num_nodes: int, channels: int, dropout: float) -> Kept:
    """For a training step; nothing is rescaled."""
    nodes = F.dropout(like.new_ones(num_nodes, 1), p=dropout) > 0
    return Kept(nodes, F.dropout(like.new_ones(channels), p=dropout) > 0)


def coefficients(
    gamma: Tensor, parameters: Tensor, base: Sequence[float], batch: Tensor | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    r""":math:`\alpha^k_{nc} = \gamma_n \alpha^k_c` and :math:`\beta^k_{nc} = \gamma_n \beta^k_c`,
    on top of the base slopes; of each segment `[..., N, C]`."""
    alpha, beta = [], []
    for k, slope in enumerate(base):
        own, weight = parameters[..., k, :], gamma[..., k % gamma.size(-1), None]
        if batch is not None:
            own = own[..., batch, :, :]
        slopes, intercepts = own.unbind(-2)
        alpha.append(slope + weight * slopes)
        beta.append(weight * intercepts)
    return alpha, beta


def piecewise_max(x: Tensor, alpha: Sequence[Tensor], beta: Sequence[Tensor]) -> Tensor:
    r""":math:`\max_{1 \leq k \leq K} \{ \alpha^k_{nc} x_{nc} + \beta^k_{nc} \}`, `[..., N, C]`.

    A tie goes to the highest `k`, and so does its gradient, as ReLU's does at zero.
    """
    out, *others = (a * x + b for a, b in zip(alpha, beta, strict=True))
    for segment in others:
        out = torch.where(segment >= out, segment, out)
    return out


def apply(
    x: Tensor, gamma: Tensor, parameters: Tensor, base: Sequence[float], batch: Tensor | None = None
) -> Tensor:
    """The largest segment of each entry, in the type of `x`, computed in that of `gamma`. Segment
    by segment is fastest for autograd: tensors `[N, K, C]` take twice as long on a large graph."""
    alpha, beta = coefficients(gamma, parameters, base, batch)
    return piecewise_max(x.to(gamma.dtype), alpha, beta).to(x.dtype)


def hyperfunction(
    x: Tensor,
    mass: Tensor,
    diffuse: Callable[[Tensor], Tensor],
    weights: Weights,
    form: Form,
    batch: Tensor | None = None,
    batch_size: int = 1,
    kept: Kept | None = None,
    project: Callable[..., tuple[Tensor, Tensor]] = project,
) -> tuple[Tensor, Tensor]:
    r"""The factors of the coefficients: `gamma` and `parameters`.

    The features are never diffused: :math:`\mathbf{S} (\mathbf{X} \mathbf{W}) = (\mathbf{S}
    \mathbf{X}) \mathbf{W}`, so the node MLP comes before the diffusion; and the mean of
    :math:`\mathbf{S} \mathbf{X}` is a weighted sum of the rows of :math:`\mathbf{X}`.

    Args:
        diffuse: Applies :math:`\mathbf{S}`.
        weights: Of the node MLP and the channel MLP.
        form: Determines the function with the above.
        kept: What dropout leaves of both factors.
        project: The equation of this name, or its fast twin.
    """
    if weights.node is None:
        mean = graph_mean(x.to(mass.dtype), mass, batch, batch_size)
        gamma = mass.new_ones(x.size(0), 1)
    else:
        projected, mean = project(x, weights.node, mass, batch, batch_size)
        gamma = weigh(diffuse(projected), form, batch, batch_size)
    if weights.bias is None:
        slopes = mass.new_ones(batch_size, 1, form.K, x.size(-1))
        parameters = F.pad(slopes, (0, 0, 0, 0, 0, 1))
    else:
        logits = channel_logits(mean, weights.channel, weights.bias, form.mode)
        parameters = channel_parameters(logits, x.size(-1), form)
    if kept is not None:
        gamma, parameters = gamma * kept.nodes, parameters * kept.channels
    return gamma, parameters
