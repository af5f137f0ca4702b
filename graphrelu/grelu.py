from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear, Parameter

from graphrelu import functional
from graphrelu.checks import check_options
from graphrelu.context import Graph, graph_around
from graphrelu.functional import DEFAULT, Form, Weights
from graphrelu.graph import (
    DiffusionSettings,
    PreparedGraph,
    check_batch,
    check_features,
    check_prepared,
    prepare,
    without_edges,
)
from graphrelu.ops import without_autocast
from graphrelu.ops.apply import apply
from graphrelu.ops.fused import fits, fused
from graphrelu.ops.project import project

Read = tuple[PreparedGraph, Tensor | None, int]  # a graph, the batch vector, the number of graphs

# The ablation tables of the paper, as keyword arguments.
VARIANTS: dict[str, dict[str, Any]] = {
    "A": {},
    "B": {"topology": False},
    "C": {"K": 1},
    "D": {"K": 1, "topology": False},
    "E": {"bias": False},
    "F": {"node_wise": False},
    "G": {"channel_wise": False},
}


class Diagonal(torch.nn.Module):
    """The weights of a channel MLP of which each output sees one channel: `rows` outputs per
    channel."""

    def __init__(self, channels: int, rows: int) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(rows, channels))
        self.bias = Parameter(torch.empty(rows, channels))

    def reset_parameters(self) -> None:
        """Zeros: a fresh module is exactly ReLU."""
        torch.nn.init.zeros_(self.weight)
        torch.nn.init.zeros_(self.bias)


class GReLU(torch.nn.Module):
    r"""The graph-adaptive rectified linear unit from the `"Graph-adaptive Rectified Linear Unit
    for Graph Neural Networks" <https://doi.org/10.1145/3485447.3512159>`_ paper.

    .. math::
        x^{\prime}_{nc} = \max_{1 \leq k \leq K} \left\{ \alpha^k_{nc} x_{nc} + \beta^k_{nc}
        \right\}

    where the slopes and intercepts of each node and channel are computed from the features and
    the graph, through personalised PageRank :math:`\mathbf{E} = \alpha (\mathbf{I} - (1 - \alpha)
    \mathbf{D}^{-1/2} \mathbf{A} \mathbf{D}^{-1/2})^{-1} \mathbf{X}`:

    .. math::
        \alpha^k_{nc} &= [k = 1] + \tilde\gamma_n \, \alpha^k_c, \qquad
        \beta^k_{nc} = \tilde\gamma_n \, \beta^k_c

        \alpha_c, \beta_c &= \tanh \left( s \, (\mathbf{w} \odot \bar{\mathbf{e}} + \mathbf{c})
        \right), \qquad
        \tilde\gamma_n = \min \left( m, \, N \, \mathrm{softmax}_n (\mathbf{e}_n \cdot
        \mathbf{v} / T) \right)

    with :math:`\bar{\mathbf{e}} = \frac{1}{N} \sum_n \mathbf{e}_n` and learned
    :math:`\mathbf{v}, \mathbf{w}, \mathbf{c}`. As :math:`\mathbf{w}` and :math:`\mathbf{c}` start
    at zero, a fresh module is exactly ReLU (for :obj:`K >= 2`) and moves away from it as training
    finds a use for the graph. It has :math:`(4K + 1) C` parameters.
    :obj:`mode="paper"` is the printed form, :math:`\alpha^k_{nc} = \gamma_n \alpha^k_c` and
    :math:`\beta^k_{nc} = \gamma_n \beta^k_c` with a plain softmax, whose activations shrink with
    the number of nodes, and with a full matrix in place of :math:`\mathbf{w}`. It has none of the
    last four arguments.

    The cost is :math:`\mathcal{O}(|\mathcal{E}| + C |\mathcal{V}|)` in time: only the node MLP's
    first layer is diffused, never the features.

    Args:
        channels (int): Size of each input and output sample.
        K (int, optional): Number of segments. (default: :obj:`2`)
        alpha (float, optional): Teleport probability, in (0, 1]. (default: :obj:`0.1`)
        steps (int, optional): Number of sparse products of the diffusion. (default: :obj:`10`)
        diffusion (str, optional): :obj:`"power"` (as :class:`~torch_geometric.nn.conv.APPNP`) or
            :obj:`"exact"` (the dense inverse, for small graphs). (default: :obj:`"power"`)
        mode (str, optional): :obj:`"calibrated"` or :obj:`"paper"`. (default: :obj:`"calibrated"`)
        topology (bool, optional): If :obj:`False`, the parameters are computed from the features
            alone. (default: :obj:`True`)
        node_wise (bool, optional): If :obj:`False`, all nodes share the same parameters.
            (default: :obj:`True`)
        channel_wise (bool, optional): If :obj:`False`, all channels share the same slopes, one
            for each node and segment, and there are no intercepts. (default: :obj:`True`)
        bias (bool, optional): If :obj:`False`, there are no intercepts. (default: :obj:`True`)
        dropout (float, optional): The probability that a node, and likewise a channel, is plain
            ReLU in a training step. Raise it to :obj:`0.2` if labels are few, such as 20 per
            class: parameters could otherwise single out the training nodes. (default: :obj:`0.0`)
        scale (float, optional): :math:`s`, how fast the slopes and intercepts learn. Lower it if
            training is unstable. (default: :obj:`8.0`)
        temperature (float, optional): :math:`T` of the node softmax. Lower it, for instance to
            :obj:`1.0`, to let nodes differ more. (default: :obj:`3.0`)
        negative_slope (float, optional): The slope below zero, at most 1, of a fresh module, which
            is then exactly :class:`~torch.nn.LeakyReLU`. (default: :obj:`0.0`)

    Examples:
        >>> act = GReLU(16)
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 0, 3]])
        >>> torch.equal(act(x, edge_index), x.relu())  # until it is trained
        True
    """

    gamma_max = DEFAULT.gamma_max
    shared_slopes: Parameter | None

    def __init__(
        self,
        channels: int,
        K: int = 2,
        alpha: float = 0.1,
        steps: int = 10,
        diffusion: str = "power",
        mode: str = "calibrated",
        topology: bool = True,
        node_wise: bool = True,
        channel_wise: bool = True,
        bias: bool = True,
        dropout: float = 0.0,
        scale: float = 8.0,
        temperature: float = 3.0,
        negative_slope: float = 0.0,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.K = K
        self.alpha = alpha
        self.steps = steps
        self.diffusion = diffusion
        self.mode = mode
        self.topology = topology
        self.node_wise = node_wise
        self.channel_wise = channel_wise
        self.bias = bias and channel_wise
        self.dropout = dropout
        self.scale = scale
        self.temperature = temperature
        self.negative_slope = negative_slope
        check_options(self)

        rows = (2 if bias else 1) * K
        self.channel_mlp: Diagonal | Linear | None = None
        self.register_parameter("shared_slopes", None)
        if channel_wise and mode == "calibrated":
            self.channel_mlp = Diagonal(channels, rows)
        elif channel_wise:
            self.channel_mlp = Linear(channels, rows * channels)
        elif mode == "calibrated":
            self.shared_slopes = Parameter(torch.empty(K))
        self.node_mlp: Linear | None = None
        if node_wise:
            # A bias would cancel in the softmax.
            self.node_mlp = Linear(channels, 1 if channel_wise else K, bias=False)
        self.register_load_state_dict_pre_hook(_rename_weights_of_older_versions)

        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for mlp in (self.channel_mlp, self.node_mlp):
            if mlp is not None:
                mlp.reset_parameters()
        if self.shared_slopes is not None:
            torch.nn.init.zeros_(self.shared_slopes)

    def forward(
        self,
        x: Tensor,
        edge_index: Any = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        r"""The activated features, in the shape of `x`.

        Args:
            x (torch.Tensor): The node features, :math:`(|\mathcal{V}|, C)`.
            edge_index (torch.Tensor or EdgeIndex or SparseTensor): The edge indices,
                :math:`(2, |\mathcal{E}|)`, or a sparse transposed adjacency; or a
                :class:`~graphrelu.graph.PreparedGraph`, which is taken as it is. Without it, the
                graph comes from :func:`~graphrelu.graph_context` or the surrounding converted
                model. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): Non-negative weights, :math:`(|\mathcal{E}|)`.
                (default: :obj:`None`)
            batch (torch.Tensor, optional): The batch vector, :math:`(|\mathcal{V}|)`, sorted, which
                assigns each node to a graph. (default: :obj:`None`)
            batch_size (int, optional): The number of graphs; counted if not given.
                (default: :obj:`None`)
        """
        given = Graph(edge_index, edge_weight, batch, batch_size)
        if edge_index is None and edge_weight is None and batch is None:
            given = graph_around(x, self.channels, is_needed=self.topology)
        graph, batch, batch_size = read = self._read(x, given)
        form, kept = self._form, None
        if self.training and self.dropout > 0:
            kept = functional.kept(graph.mass, x.size(0), self.channels, self.dropout)
        if self.channel_mlp is not None and fits(x, graph, batch, batch_size, form):
            weights = self._weights(graph.mass.dtype)
            return fused(x, weights, graph, batch, batch_size, form, kept)
        gamma, parameters = self._hyperfunction(x, read, kept)
        return apply(x, gamma, parameters, form.base_slopes, batch)

    def _weights(self, dtype: torch.dtype) -> Weights:
        node = None if self.node_mlp is None else self.node_mlp.weight.to(dtype)
        if self.channel_mlp is not None:
            return Weights(node, self.channel_mlp.weight.to(dtype), self.channel_mlp.bias.to(dtype))
        if self.shared_slopes is None:
            return Weights(node, None, None)
        return Weights(node, None, self.shared_slopes.to(dtype).repeat_interleave(self.channels))

    @property
    def _form(self) -> Form:
        constants = self.scale, self.temperature, self.dropout, self.gamma_max
        return Form(self.K, self.mode, self.bias, self.negative_slope, *constants)

    def coefficients(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        r"""The slopes and intercepts that :meth:`forward` applies to the same arguments, each of
        shape :math:`(|\mathcal{V}|, K, C)`, except that nothing is dropped."""
        read = self._read(x, Graph(edge_index, edge_weight, batch, batch_size))
        gamma, parameters = self._hyperfunction(x, read)
        base = self._form.base_slopes
        slopes, intercepts = functional.coefficients(gamma, parameters, base, batch=read[1])
        return torch.stack(slopes, dim=1), torch.stack(intercepts, dim=1)

    def gamma(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        r"""The node-wise parameters, likewise: :math:`(|\mathcal{V}|, 1)`, or
        :math:`(|\mathcal{V}|, K)` without channel block."""
        read = self._read(x, Graph(edge_index, edge_weight, batch, batch_size))
        return self._hyperfunction(x, read)[0]

    def _read(self, x: Tensor, given: Graph) -> Read:
        """The graph and the batch, checked and prepared."""
        edge_index, edge_weight, batch, batch_size, _ = given
        check_features(x, edge_index, edge_weight, self.channels)
        batch, batch_size = check_batch(x, batch, batch_size)
        settings = DiffusionSettings(self.alpha, self.steps, self.diffusion)
        # Half precision has neither the range for sums over a graph nor the digits for a softmax.
        dtype = torch.promote_types(x.dtype, torch.float32)
        if not self.topology:
            return without_edges(x.size(0), dtype, x.device), batch, batch_size
        if isinstance(edge_index, PreparedGraph):
            check_prepared(edge_index, settings, x, dtype)
            return edge_index, batch, batch_size
        with without_autocast(x):
            graph = prepare(edge_index, edge_weight, x.size(0), dtype, settings, batch)
        return graph, batch, batch_size

    def _hyperfunction(
        self, x: Tensor, read: Read, kept: functional.Kept | None = None
    ) -> tuple[Tensor, Tensor]:
        graph, batch, batch_size = read
        rest = self._weights(graph.mass.dtype), self._form, batch, batch_size, kept, project
        with without_autocast(x):
            return functional.hyperfunction(x, graph.mass, graph.diffuse, *rest)

    def __repr__(self) -> str:
        """With the arguments that differ from their defaults."""
        shown = [str(self.channels)]
        for name, parameter in signature(GReLU).parameters.items():
            value = getattr(self, name)
            if name != "channels" and value != parameter.default:
                shown.append(f"{name}={value!r}")
        return f"{self.__class__.__name__}({', '.join(shown)})"


def _rename_weights_of_older_versions(
    module: torch.nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any
) -> None:
    """Up to version 0.2 a block could have a hidden layer, and its weight was that of `first`."""
    for name in ("node_mlp.weight", "channel_mlp.weight", "channel_mlp.bias"):
        block, kind = name.split(".")
        older = f"{prefix}{block}.first.{kind}"
        if older in state_dict:
            state_dict[prefix + name] = state_dict.pop(older)
