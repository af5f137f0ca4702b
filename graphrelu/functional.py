r"""The equations of GReLU in plain torch: the reference that every fast path is tested against.

One function per equation of `"Graph-adaptive Rectified Linear Unit for Graph Neural Networks"
<https://doi.org/10.1145/3485447.3512159>`_, under its symbols: :math:`\mathbf{e}_n` are diffused
features, :math:`\alpha^k_c, \beta^k_c` the channel-wise and :math:`\gamma_n` the node-wise
parameters. :func:`hyperfunction` puts them together, for the reference :func:`grelu` and for the
module alike. Nothing here is fast, and everything is differentiable.

The diffusion :math:`\mathbf{S} = \alpha (\mathbf{I} - (1 - \alpha) \mathbf{A})^{-1}`, with
:math:`\mathbf{A}` the normalised adjacency, is personalised PageRank.

Shapes: `N` nodes, `C` channels, `K` segments, `B` graphs.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import scatter

MODES = ("calibrated", "paper")
DIFFUSIONS = ("power", "chebyshev", "exact")

# A GPU's softmax leaves a row to a single block of threads: beyond this length it is written out.
LONG_COLUMN = 1 << 16

Block = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, Tensor, float, float], Tensor]


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


# What replaces the graph-wide quantities of a batch: see :mod:`graphrelu.statistics`.
Statistics = Callable[
    [Tensor | None, Tensor | None, int, Form, bool], tuple[Tensor | None, Tensor | None]
]


class Edges(NamedTuple):
    """A weighted edge list; messages flow from ``source`` to ``target``."""

    source: Tensor
    target: Tensor
    weight: Tensor
    num_nodes: int

    def transposed(self) -> "Edges":
        return Edges(self.target, self.source, self.weight, self.num_nodes)


def normalized_adjacency(edges: Edges, add_self_loops: bool = False) -> Edges:
    r""":math:`\mathbf{D}^{-1/2} \mathbf{A} \mathbf{D}^{-1/2}`, with PyG's (incoming) degree.

    A node of degree zero keeps an empty row. Every shape is known beforehand, so that the
    function compiles.
    """
    source, target, weight, num_nodes = edges
    if add_self_loops:
        # As PyG's `add_remaining_self_loops`: a node that has a loop gets no other.
        loops = scatter((source == target).long(), source, dim=0, dim_size=num_nodes, reduce="sum")
        nodes = torch.arange(num_nodes, device=source.device)
        source, target = torch.cat([source, nodes]), torch.cat([target, nodes])
        weight = torch.cat([weight, (loops == 0).to(weight.dtype)])

    # In float32 a sum of ones ends at 2^24, and small weights have no inverse.
    wide = widened(weight)
    scale = inverse_root(scatter(wide, target, dim=0, dim_size=num_nodes, reduce="sum"))
    # The product of the two scales commutes: a symmetric graph stays symmetric to the last bit.
    normalized = (wide * (scale[source] * scale[target])).to(weight.dtype)
    return Edges(source, target, normalized, num_nodes)


def widened(x: Tensor) -> Tensor:
    """In float64, where the device has it: Apple's GPUs do not."""
    return x if x.device.type == "mps" else x.double()


def inverse_root(degree: Tensor) -> Tensor:
    r""":math:`\mathbf{D}^{-1/2}`, zero where the degree is."""
    isolated = degree == 0
    return degree.masked_fill(isolated, 1.0).rsqrt().masked_fill(isolated, 0.0)


def propagate(edges: Edges, current: Tensor, previous: Tensor, a: float, b: float) -> Tensor:
    """`a * A @ current + b * previous`: every target sums its weighted sources."""
    message = edges.weight.view(-1, 1) * current[edges.source]
    product = a * scatter(message, edges.target, dim=0, dim_size=edges.num_nodes, reduce="sum")
    return product + b * previous if b else product


def chebyshev_coefficients(alpha: float, steps: int) -> list[float]:
    r"""The best uniform approximation of :math:`\alpha / (1 - (1 - \alpha) \lambda)` on [-1, 1].

    The Chebyshev series of this function is geometric; dividing the last kept coefficient by
    :math:`1 - \rho^2` turns the truncated series into the minimax polynomial (Chebyshev, 1859).
    """
    if alpha == 1.0:
        return [1.0]
    c = 1.0 - alpha
    root = math.sqrt(1.0 - c * c)
    rho = (1.0 - root) / c
    coefficients = [alpha / root] + [2.0 * alpha / root * rho**k for k in range(1, steps + 1)]
    coefficients[-1] /= 1.0 - rho * rho
    return coefficients


def polynomial(x: Tensor, step: Step, alpha: float, steps: int, diffusion: str) -> Tensor:
    """The diffusion as a polynomial of the matrix `A`. A fast path replaces the step.

    Args:
        x: `[N, F]`, every column of which is diffused.
        step: From `current`, `previous`, `a` and `b` to `a * A @ current + b * previous`.
        alpha: The teleport probability.
        steps: The number of products with `A`.
        diffusion: `power` is the iteration that PyG's :class:`APPNP` defines. `chebyshev` is the
            best polynomial of this degree, for a symmetric `A`.
    """
    if diffusion == "power":
        out = x
        for _ in range(steps):
            out = step(out, x, 1.0 - alpha, float(alpha))
        return out
    first, *coefficients = chebyshev_coefficients(alpha, steps)
    out = first * x
    previous, current = x, x
    a, b = 1.0, 0.0
    for coefficient in coefficients:
        previous, current = current, step(current, previous, a, b)
        out = torch.add(out, current, alpha=coefficient)
        a, b = 2.0, -1.0
    return out


def exact_operator(edges: Edges, alpha: float) -> Tensor:
    """The printed inverse as a dense matrix."""
    dense = edges.weight.new_zeros(edges.num_nodes, edges.num_nodes)
    dense = dense.index_put((edges.target, edges.source), edges.weight, accumulate=True)
    identity = torch.eye(edges.num_nodes, dtype=dense.dtype, device=dense.device)
    return alpha * torch.linalg.inv(identity - (1 - alpha) * dense)


def pagerank(x: Tensor, edges: Edges, alpha: float, steps: int, diffusion: str) -> Tensor:
    """Diffuses every column of `x` over normalised `edges`."""
    if diffusion == "exact":
        return exact_operator(edges, alpha) @ x
    return polynomial(x, partial(propagate, edges), alpha, steps, diffusion)


def diffuse(
    x: Tensor,
    edge_index: Tensor | Edges,
    edge_weight: Tensor | None = None,
    alpha: float = 0.1,
    steps: int = 10,
    diffusion: str = "power",
    add_self_loops: bool = False,
) -> Tensor:
    r""":math:`\mathbf{E} = \mathbf{S}^{\mathrm{PPR}} \mathbf{X}`, shape `[N, C]`."""
    if not isinstance(edge_index, Edges):
        ones = x.new_ones(edge_index.size(1))
        weight = ones if edge_weight is None else edge_weight.to(x.dtype)
        edge_index = Edges(edge_index[0], edge_index[1], weight, x.size(0))
    edges = normalized_adjacency(edge_index, add_self_loops)
    return pagerank(x, edges, alpha, steps, diffusion)


def graph_mean(e: Tensor, batch: Tensor | None = None, batch_size: int = 1) -> Tensor:
    r""":math:`\bar{\mathbf{e}} = \frac{1}{N} \sum_n \mathbf{e}_n` of each graph, `[B, C]`."""
    if batch is None:
        return e.sum(dim=0, keepdim=True) / max(1, e.size(0))
    nodes = nodes_per_graph(batch, batch_size).clamp(min=1)
    return graph_sum(e, batch, batch_size) / nodes.view(-1, 1)


def graph_sum(x: Tensor, batch: Tensor, batch_size: int) -> Tensor:
    """The sum over the nodes of each graph; on a GPU scatter would add in any order."""
    if not x.is_cuda:
        return scatter(x, batch, dim=0, dim_size=batch_size, reduce="sum")
    return x.new_zeros(batch_size, x.size(1)).index_put((batch,), x, accumulate=True)


def nodes_per_graph(batch: Tensor, batch_size: int) -> Tensor:
    return scatter(torch.ones_like(batch), batch, dim=0, dim_size=batch_size, reduce="sum")


def channel_parameters(logits: Tensor, channels: int, form: Form) -> Tensor:
    r""":math:`\mathbf{P} = \tanh(\mathrm{MLP}(\bar{\mathbf{e}}))`, slopes and intercepts, from the
    MLP's outputs; calibrated :math:`\tanh(s \, \mathrm{MLP}(\bar{\mathbf{e}}))`: `[B, 2, K, C]`.
    """
    if form.mode == "calibrated":
        logits = form.scale * logits
    both = 2 if form.bias else 1
    parameters = torch.tanh(logits).view(logits.size(0), both, form.K, channels)
    return parameters if form.bias else without_intercepts(parameters)


def without_intercepts(slopes: Tensor) -> Tensor:
    """Slopes `[B, 1, K, C]`, and zeros beside them."""
    return F.pad(slopes, (0, 0, 0, 0, 0, 1))


def node_parameters(logits: Tensor, batch: Tensor | None = None, batch_size: int = 1) -> Tensor:
    r""":math:`\gamma_n = \mathrm{softmax}_n(\mathrm{MLP}(\mathbf{e}_n))` within each graph, from
    the MLP's outputs: `[N, 1]`, or `[N, K]` where each segment has a weight of its own."""
    if batch is None:
        if not logits.is_cuda or logits.size(0) <= LONG_COLUMN:
            return torch.softmax(logits.t(), dim=1).t()  # a row is faster than a column
        weight = torch.exp(logits - logits.detach().amax(dim=0))
        return weight / weight.sum(dim=0)
    largest = scatter(logits.detach(), batch, dim=0, dim_size=batch_size, reduce="max")
    weight = torch.exp(logits - largest[batch])
    # One by one, in float32, the nodes of a large graph would not add up.
    total = graph_sum(widened(weight), batch, batch_size)
    return weight / total.to(weight.dtype)[batch]


def calibrated_node_parameters(
    logits: Tensor, form: Form, batch: Tensor | None = None, batch_size: int = 1
) -> Tensor:
    r""":math:`\tilde\gamma_n = \min(m, N \, \mathrm{softmax}_n(\mathrm{MLP}(\mathbf{e}_n) / T))`:
    a weight that is 1 on average and does not vanish as the graph grows."""
    gamma = node_parameters(logits / form.temperature, batch, batch_size)
    if batch is None:
        gamma = logits.size(0) * gamma
    else:
        gamma = nodes_per_graph(batch, batch_size)[batch].view(-1, 1) * gamma
    return gamma.clamp(max=form.gamma_max)


def node_weights(
    logits: Tensor, form: Form, batch: Tensor | None = None, batch_size: int = 1
) -> Tensor:
    r""":math:`\gamma_n`, or calibrated :math:`\tilde\gamma_n`."""
    if form.mode == "paper":
        return node_parameters(logits, batch, batch_size)
    return calibrated_node_parameters(logits, form, batch, batch_size)


def dropped(gamma: Tensor, parameters: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
    """For a training step: each node, and each channel, is plain ReLU with this probability.
    Nothing is rescaled."""
    nodes = F.dropout(gamma.new_ones(gamma.size(0), 1), p=dropout) > 0
    channels = F.dropout(parameters.new_ones(parameters.size(3)), p=dropout) > 0
    return gamma * nodes, parameters * channels


def log_sum_exp(logits: Tensor, form: Form) -> Tensor:
    r""":math:`\log \sum_n \exp(z_n)`, calibrated :math:`\log \sum_n \exp(z_n / T)`: the
    denominator of the node softmax, `[1, 1]` or `[1, K]`."""
    logits = logits if form.mode == "paper" else logits / form.temperature
    return logits.logsumexp(dim=0, keepdim=True)


def normalized_node_parameters(logits: Tensor, log_normaliser: Tensor, form: Form) -> Tensor:
    r""":math:`\gamma_n = \exp(z_n) / \sum_m \exp(z_m)`, where the sum over the nodes is given, or
    :math:`\tilde\gamma_n = \min(m, \exp(z_n / T) / \mathrm{mean}_m \exp(z_m / T))`, where the mean
    is; both as logarithms.

    With an estimate, also the printed :math:`\gamma_n` could exceed 1, and is kept from it.
    """
    if form.mode == "paper":
        return torch.exp((logits - log_normaliser).clamp(max=0.0))
    log_gamma = logits / form.temperature - log_normaliser
    return torch.exp(log_gamma.clamp(max=math.log(form.gamma_max)))


def hyperfunction(
    mean: Tensor | None,
    logits: Tensor | None,
    channel_mlp: Block | None,
    shared_slopes: Tensor | None,
    size: tuple[int, int],
    form: Form,
    batch: Tensor | None = None,
    batch_size: int = 1,
    statistics: Statistics | None = None,
    update: bool = False,
    training: bool = False,
    weigh: Callable[..., Tensor] = node_weights,
) -> tuple[Tensor, Tensor]:
    r"""The two blocks: :math:`\gamma_n`, `[N, 1]` or `[N, K]`, and :math:`\alpha^k_c`,
    :math:`\beta^k_c`, `[B, 2, K, C]`.

    Args:
        mean: :math:`\bar{\mathbf{e}}` of each graph, `[B, C]`; none without channel block.
        logits: The node MLP's outputs, `[N, 1]` or `[N, K]`; none without node block (variant F).
        channel_mlp: From the mean to what the tanh is taken of; none without channel block
            (variant G).
        shared_slopes: Then, in calibrated mode, what the tanh is taken of, `[K]`.
        size: `N, C`.
        form: The constants.
        batch: The graph of each node, `[N]`.
        batch_size: `B`.
        statistics: Where mean and normaliser are not those of these nodes alone.
        update: Whether the statistics are to take these nodes in.
        training: Whether nodes and channels are dropped.
        weigh: :func:`node_weights`, or its fast twin.
    """
    num_nodes, channels = size
    log_normaliser = None
    if statistics is not None:
        mean, log_normaliser = statistics(mean, logits, num_nodes, form, update)
    if channel_mlp is not None and mean is not None:
        parameters = channel_parameters(channel_mlp(mean), channels, form)
    else:
        assert logits is not None
        slopes = logits.new_ones(batch_size, 1, form.K, channels)
        if shared_slopes is not None:
            slopes = torch.tanh(form.scale * shared_slopes).view(-1, 1) * slopes
        parameters = without_intercepts(slopes)
    if logits is None:
        gamma = parameters.new_ones(num_nodes, 1)
    elif log_normaliser is not None:
        gamma = normalized_node_parameters(logits, log_normaliser, form)
    else:
        gamma = weigh(logits, form, batch, batch_size)
    if training and form.dropout > 0:
        return dropped(gamma, parameters, form.dropout)
    return gamma, parameters


def coefficients(
    gamma: Tensor,
    parameters: Tensor,
    base: tuple[float, ...],
    batch: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r""":math:`\alpha^k_{nc} = \gamma_n \alpha^k_c` and :math:`\beta^k_{nc} = \gamma_n \beta^k_c`,
    on top of the base slopes; each `[N, K, C]`."""
    gamma = gamma.unsqueeze(-1)
    slopes, intercepts = (parameters if batch is None else parameters[batch]).unbind(1)
    return gamma.new_tensor(base).view(1, -1, 1) + gamma * slopes, gamma * intercepts


def piecewise_max(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    r""":math:`\max_{1 \leq k \leq K} \{ \alpha^k_{nc} x_{nc} + \beta^k_{nc} \}`, `[N, C]`.

    A tie goes to the highest `k`, and so does its gradient, as ReLU's does at zero.
    """
    segments = alpha * x.unsqueeze(1) + beta
    out = segments[:, 0]
    for k in range(1, segments.size(1)):
        out = torch.where(segments[:, k] >= out, segments[:, k], out)
    return out


def grelu(
    x: Tensor,
    edge_index: Tensor | Edges | Block | None,
    channel_mlp: Block | None,
    node_mlp: Block | None,
    shared_slopes: Tensor | None = None,
    *,
    form: Form = DEFAULT,
    edge_weight: Tensor | None = None,
    batch: Tensor | None = None,
    batch_size: int = 1,
    alpha: float = 0.1,
    steps: int = 10,
    diffusion: str = "power",
    topology: bool = True,
    add_self_loops: bool = False,
    statistics: Statistics | None = None,
    training: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """GReLU step by step; returns the output and the coefficients it applied.

    Without `node_mlp` all nodes share the channel-wise parameters (variant F); without
    `channel_mlp` all channels share the node-wise ones (variant G). With `statistics`, mean and
    normaliser are not those of `x` alone. `edge_index` may be the diffusion itself.
    """
    e = x
    if topology and edge_index is not None:
        if isinstance(edge_index, (Tensor, Edges)):
            e = diffuse(x, edge_index, edge_weight, alpha, steps, diffusion, add_self_loops)
        else:
            e = edge_index(x)
    gamma, parameters = hyperfunction(
        None if channel_mlp is None else graph_mean(e, batch, batch_size),
        None if node_mlp is None else node_mlp(e),
        channel_mlp,
        shared_slopes,
        (x.size(0), x.size(1)),
        form,
        batch,
        batch_size,
        statistics,
        update=True,
        training=training,
    )
    a, b = coefficients(gamma, parameters, form.base_slopes, batch)
    return piecewise_max(x, a, b), a, b
