from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear, Parameter

from graphrelu import functional
from graphrelu.checks import check_batch, check_features, check_options, may_look
from graphrelu.context import graph_around
from graphrelu.diffusion import (
    DiffusionSettings,
    PreparedGraph,
    as_edges,
    check_prepared,
    check_values,
    prepared,
)
from graphrelu.functional import Block, Edges, Form
from graphrelu.ops import dispatch
from graphrelu.ops.cpu import can_be_read
from graphrelu.ops.dispatch import without_autocast
from graphrelu.statistics import GraphStatistics

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


class DiagonalMap(torch.nn.Module):
    r""":math:`\mathbf{w} \odot \bar{\mathbf{e}} + \mathbf{c}`: each output sees one channel.

    Args:
        channels (int): `C`.
        rows (int): Outputs per channel.
        device (torch.device, optional): The device of the parameters.
    """

    def __init__(self, channels: int, rows: int, device: torch.device | str | None) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(rows, channels, device=device))
        self.bias = Parameter(torch.empty(rows, channels, device=device))
        self.zero_last_layer()

    def reset_parameters(self) -> None:
        self.zero_last_layer()

    def zero_last_layer(self) -> None:
        """Makes the output zero, whatever the input."""
        torch.nn.init.zeros_(self.weight)
        torch.nn.init.zeros_(self.bias)

    def forward(self, mean: Tensor) -> Tensor:
        """From `[B, C]` to `[B, rows * C]`."""
        weight, bias = self.weight.to(mean.dtype), self.bias.to(mean.dtype)
        return torch.addcmul(bias, weight, mean.unsqueeze(1)).flatten(1)


class HyperMLP(torch.nn.Module):
    """Linear, or with one hidden layer.

    The first layer's weight can be applied on its own: it commutes with the diffusion.
    """

    def __init__(
        self,
        in_channels: int,
        hidden: int | None,
        out_channels: int,
        last_bias: bool,
        device: torch.device | str | None,
    ) -> None:
        super().__init__()
        width = out_channels if hidden is None else hidden
        first_bias = last_bias if hidden is None else True
        self.first = Linear(in_channels, width, bias=first_bias, device=device)
        self.last: Linear | None = None
        if hidden is not None:
            self.last = Linear(hidden, out_channels, bias=last_bias, device=device)

    def reset_parameters(self) -> None:
        self.first.reset_parameters()
        if self.last is not None:
            self.last.reset_parameters()

    def zero_last_layer(self) -> None:
        """Makes the output zero, whatever the input."""
        last = self.first if self.last is None else self.last
        for parameter in last.parameters():
            torch.nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        return self.after_projection(x @ self.projection(x.dtype).t())

    def projection(self, dtype: torch.dtype) -> Tensor:
        """The first layer's weight."""
        return self.first.weight.to(dtype)

    def after_projection(self, z: Tensor) -> Tensor:
        """All that follows the first layer's weight."""
        if self.first.bias is not None:
            z = z + self.first.bias.to(z.dtype)
        if self.last is None:
            return z
        bias = None if self.last.bias is None else self.last.bias.to(z.dtype)
        return F.linear(z.relu(), self.last.weight.to(z.dtype), bias)


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
    the number of nodes, and with a full matrix in the place of :math:`\mathbf{w}`.

    The cost is :math:`\mathcal{O}(|\mathcal{E}| + C |\mathcal{V}|)` in time: only the node MLP's
    first layer is diffused, never the features.

    Args:
        channels (int): Size of each input and output sample.
        K (int, optional): Number of segments. (default: :obj:`2`)
        alpha (float, optional): Teleport probability of the diffusion, in (0, 1].
            (default: :obj:`0.1`)
        steps (int, optional): Number of sparse products of the diffusion. (default: :obj:`10`)
        diffusion (str, optional): :obj:`"power"` (as :class:`~torch_geometric.nn.conv.APPNP`),
            :obj:`"chebyshev"` (more accurate for the same `steps`; undirected graphs only) or
            :obj:`"exact"` (the dense inverse, for small graphs). (default: :obj:`"power"`)
        mode (str, optional): :obj:`"calibrated"` or :obj:`"paper"`.
            (default: :obj:`"calibrated"`)
        topology (bool, optional): If :obj:`False`, the parameters are computed from the features
            alone. (default: :obj:`True`)
        node_wise (bool, optional): If :obj:`False`, all nodes share the same parameters.
            (default: :obj:`True`)
        channel_wise (bool, optional): If :obj:`False`, all channels share the same slopes, each
            node and segment having one of its own, and there are no intercepts.
            (default: :obj:`True`)
        bias (bool, optional): If :obj:`False`, there are no intercepts. (default: :obj:`True`)
        dropout (float, optional): The probability with which a node, and likewise a channel, is
            plain ReLU in a training step. Turn it up to :obj:`0.2` where labels are few, such as
            20 per class: the parameters would single out the training nodes. Calibrated mode
            only. (default: :obj:`0.0`)
        scale (float, optional): :math:`s`, how fast the slopes and intercepts learn. Turn it down
            where training is unstable. Calibrated mode only. (default: :obj:`8.0`)
        temperature (float, optional): :math:`T` of the node softmax. Turn it down,
            as to :obj:`1.0`, for nodes that differ more from each other. Calibrated mode only.
            (default: :obj:`3.0`)
        gamma_max (float, optional): :math:`m`, the largest weight of a node; the mean is 1. Turn it
            down where single nodes dominate. Calibrated mode only. (default: :obj:`3.0`)
        diagonal (bool, optional): If :obj:`False`, the channel block is a full linear map as in
            the paper, with :math:`2KC^2` weights. :obj:`None` is :obj:`True` in calibrated mode
            without `hidden`, else :obj:`False`. (default: :obj:`None`)
        hidden (int, optional): Width of a hidden layer in both MLPs; without one they are
            linear. (default: :obj:`None`)
        negative_slope (float, optional): The slope that a fresh module has below zero, at most
            1; with it a fresh module is exactly :class:`~torch.nn.LeakyReLU`. Calibrated mode
            only. (default: :obj:`0.0`)
        add_self_loops (bool, optional): If :obj:`True`, adds self-loops before normalising.
            (default: :obj:`False`)
        cached (bool, optional): If :obj:`True`, keeps the prepared graph of the first call for
            all further ones. Only for transductive learning. (default: :obj:`False`)
        device (torch.device, optional): The device of the parameters. (default: :obj:`None`)
        validate (bool, optional): Whether to check index ranges, weights and the order of
            `batch`; :obj:`None` does so on the CPU, where it costs no synchronisation. Never
            under :func:`torch.compile` or :func:`torch.func.vmap`. (default: :obj:`None`)
        track_running_stats (bool, optional): If :obj:`True`, keeps running averages of
            :math:`\bar{\mathbf{e}}` and of the softmax's normaliser, which in training are those
            of the batch, and uses them in evaluation: a node's output then does not depend on
            which other nodes share its batch. Not for batches of several graphs.
            (default: :obj:`False`)
        momentum (float, optional): The weight of the latest batch in the running averages, once
            there are enough of them; :obj:`None` weighs all batches the same.
            (default: :obj:`0.1`)
        sync (bool, optional): If :obj:`True`, these quantities are in training those of
            the batches of all processes of :mod:`torch.distributed`, as in
            :class:`~torch.nn.SyncBatchNorm`; all processes must make the same calls.
            (default: :obj:`False`)

    Shapes:
        - **input:**
          node features :math:`(|\mathcal{V}|, C)`,
          edge indices :math:`(2, |\mathcal{E}|)` or a sparse transposed adjacency,
          edge weights :math:`(|\mathcal{E}|)` *(optional)*,
          batch vector :math:`(|\mathcal{V}|)` *(optional)*
        - **output:** node features :math:`(|\mathcal{V}|, C)`

    Examples:
        >>> act = GReLU(16)
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 0, 3]])
        >>> torch.equal(act(x, edge_index), x.relu())  # until it is trained
        True
    """

    shared_slopes: Parameter | None
    _cached_graph: PreparedGraph | None

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
        gamma_max: float = 3.0,
        diagonal: bool | None = None,
        hidden: int | None = None,
        negative_slope: float = 0.0,
        add_self_loops: bool = False,
        cached: bool = False,
        device: torch.device | str | None = None,
        validate: bool | None = None,
        track_running_stats: bool = False,
        momentum: float | None = 0.1,
        sync: bool = False,
    ) -> None:
        super().__init__()
        if diagonal is None:
            diagonal = mode == "calibrated" and hidden is None
        form = Form(K, mode, bias, negative_slope, scale, temperature, gamma_max, dropout)
        check_options(
            form, channels, alpha, steps, diffusion, node_wise, channel_wise, hidden, diagonal
        )
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
        self.gamma_max = gamma_max
        self.diagonal = diagonal
        self.hidden = hidden
        self.negative_slope = negative_slope
        self.add_self_loops = add_self_loops
        self.cached = cached
        self.validate = validate
        self.track_running_stats = track_running_stats
        self.momentum = momentum
        self.sync = sync

        self.channel_mlp: DiagonalMap | HyperMLP | None = None
        rows = (2 if bias else 1) * K
        if channel_wise and diagonal:
            self.channel_mlp = DiagonalMap(channels, rows, device)
        elif channel_wise:
            self.channel_mlp = HyperMLP(channels, hidden, rows * channels, True, device)
        has_shared = mode == "calibrated" and not channel_wise
        shared = Parameter(torch.empty(K, device=device)) if has_shared else None
        self.register_parameter("shared_slopes", shared)
        self.node_mlp: HyperMLP | None = None
        if node_wise:
            # A bias of the last layer would cancel in the softmax.
            self.node_mlp = HyperMLP(channels, hidden, 1 if channel_wise else K, False, device)
        self.statistics: GraphStatistics | None = None
        if track_running_stats or sync:
            self.statistics = GraphStatistics(
                channels if channel_wise else None,
                None if not node_wise else 1 if channel_wise else K,
                track_running_stats,
                momentum,
                sync,
                device,
            )
        self._cached_graph = None

        self.reset_parameters()

    @classmethod
    def variant(cls, letter: str, channels: int, **kwargs: Any) -> "GReLU":
        r"""A variant of the paper's ablation tables, :obj:`"A"` (GReLU itself) to :obj:`"G"`.

        Args:
            letter (str): :obj:`"B"` has no topology, :obj:`"C"` one segment, :obj:`"D"` neither,
                :obj:`"E"` no intercept, :obj:`"F"` is channel-wise only, :obj:`"G"` node-wise
                only.
            channels (int): Size of each input sample.
            **kwargs (optional): Further arguments of :class:`GReLU`.
        """
        if letter not in VARIANTS:
            raise ValueError(f"letter must be one of {', '.join(VARIANTS)}, got {letter!r}.")
        return cls(channels, **{**VARIANTS[letter], **kwargs})

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters and running statistics of the module, and forgets a
        cached graph."""
        for mlp in (self.channel_mlp, self.node_mlp):
            if mlp is not None:
                mlp.reset_parameters()
        if self.mode == "calibrated" and self.channel_mlp is not None:
            self.channel_mlp.zero_last_layer()
        if self.shared_slopes is not None:
            torch.nn.init.zeros_(self.shared_slopes)
        self.reset_running_stats()
        self._cached_graph = None

    def reset_running_stats(self) -> None:
        r"""Forgets the batches that the running statistics are averages of."""
        if self.statistics is not None:
            self.statistics.reset_running_stats()

    def forward(
        self,
        x: Tensor,
        edge_index: Any = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        r"""Forward pass.

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor or EdgeIndex or SparseTensor): The edge indices, or a sparse
                transposed adjacency; or a :class:`~graphrelu.diffusion.PreparedGraph`, which is
                taken as it is. Without it, that of :func:`~graphrelu.graph_context` or of the
                converted model around. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): Non-negative edge weights.
                (default: :obj:`None`)
            batch (torch.Tensor, optional): The batch vector
                :math:`\mathbf{b} \in {\{ 0, \ldots, B-1\}}^N`, sorted, which assigns each node
                to a graph. (default: :obj:`None`)
            batch_size (int, optional): The number of graphs :math:`B`. Automatically calculated
                if not given. (default: :obj:`None`)
        """
        if edge_index is None and edge_weight is None and batch is None:
            edge_index, edge_weight, batch, batch_size = graph_around(
                x, is_needed=self.topology and self._cached_graph is None
            )
        if isinstance(x, Tensor) and dispatch.backend(x) == "reference":
            return self._reference(x, edge_index, edge_weight, batch, batch_size)
        x, gamma, parameters, batch = self._hyperfunction(
            x, edge_index, edge_weight, batch, batch_size, update=True, training=self.training
        )
        base = self._form.base_slopes
        return dispatch.apply(x, gamma, parameters, base, batch)

    @property
    def _form(self) -> Form:
        return Form(
            self.K,
            self.mode,
            self.bias,
            self.negative_slope,
            self.scale,
            self.temperature,
            self.gamma_max,
            self.dropout,
        )

    def _reference(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None,
        batch: Tensor | None,
        batch_size: int | None,
    ) -> Tensor:
        """The equations as they stand in :mod:`graphrelu.functional`, for debugging."""
        check_features(x, edge_index, edge_weight, self.channels)
        looks = may_look(x, self.validate)
        batch, batch_size = check_batch(x, batch, batch_size, looks)
        statistics = self._statistics(batch)
        dtype = torch.promote_types(x.dtype, torch.float32)
        shared = None if self.shared_slopes is None else self.shared_slopes.to(dtype)
        with without_autocast(x):
            graph: Edges | Block | None = None
            if self.topology and (edge_index is None or isinstance(edge_index, PreparedGraph)):
                known = self._graph(x, edge_index, edge_weight, dtype, batch, looks)
                graph = known.diffuse_by_reference
            elif self.topology:
                graph = as_edges(edge_index, edge_weight, x.size(0), dtype)
                if looks and can_be_read(graph.source, graph.weight):
                    check_values(graph, self.diffusion, batch)
            out, _, _ = functional.grelu(
                x.to(dtype),
                graph,
                self.channel_mlp,
                self.node_mlp,
                shared,
                form=self._form,
                batch=batch,
                batch_size=batch_size,
                alpha=self.alpha,
                steps=self.steps,
                diffusion=self.diffusion,
                topology=self.topology,
                add_self_loops=self.add_self_loops,
                statistics=statistics,
                training=self.training,
            )
        return out.to(x.dtype)

    def coefficients(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        r"""The slopes and intercepts that :meth:`forward` applies to the same arguments, each of
        shape :math:`(|\mathcal{V}|, K, C)`, but that nothing is dropped. Running statistics stay as
        they are."""
        _, gamma, parameters, batch = self._hyperfunction(
            x, edge_index, edge_weight, batch, batch_size
        )
        return functional.coefficients(gamma, parameters, self._form.base_slopes, batch)

    def gamma(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        r"""The node-wise parameters that :meth:`forward` applies to the same arguments, of shape
        :math:`(|\mathcal{V}|, 1)`, or :math:`(|\mathcal{V}|, K)` without channel block, but that
        nothing is dropped. Running statistics stay as they are."""
        return self._hyperfunction(x, edge_index, edge_weight, batch, batch_size)[1]

    def _hyperfunction(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None,
        batch: Tensor | None,
        batch_size: int | None,
        update: bool = False,
        training: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """The features to activate; the factors of their coefficients, gamma and the parameters of
        the channels; and the batch vector."""
        check_features(x, edge_index, edge_weight, self.channels)
        looks = may_look(x, self.validate)
        batch, batch_size = check_batch(x, batch, batch_size, looks)
        statistics = self._statistics(batch)
        # Half precision has neither the range for sums over a graph nor the digits for a softmax.
        dtype = torch.promote_types(x.dtype, torch.float32)
        shared = None if self.shared_slopes is None else self.shared_slopes.to(dtype)
        with without_autocast(x):
            graph = None
            if self.topology:
                graph = self._graph(x, edge_index, edge_weight, dtype, batch, looks)
            x, mean, logits = self._squeeze(x, dtype, graph, batch, batch_size)
            gamma, parameters = functional.hyperfunction(
                mean,
                logits,
                self.channel_mlp,
                shared,
                (x.size(0), self.channels),
                self._form,
                batch,
                batch_size,
                statistics,
                update,
                training,
                weigh=dispatch.weigh,
            )
        return x, gamma, parameters, batch

    def _statistics(self, batch: Tensor | None) -> GraphStatistics | None:
        """What replaces the batch's own mean and normaliser; in a batch of graphs nothing does."""
        if batch is None or self.statistics is None:
            return self.statistics
        if self.statistics.track:
            raise ValueError(
                "batch must be None with track_running_stats=True: in a batch of several graphs "
                "each has statistics of its own."
            )
        return None

    def _squeeze(
        self,
        x: Tensor,
        dtype: torch.dtype,
        graph: PreparedGraph | None,
        batch: Tensor | None,
        batch_size: int,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """`x`, the channel block's input and the node MLP's outputs, without diffusing `x`.

        S (X W) = (S X) W, so the node MLP's first layer comes before the diffusion; and the mean
        of S X is a weighted sum of X.
        """
        # Not `x.new_ones`: below a vmap, that is a mass for each replica.
        mass = torch.ones(x.size(0), dtype=dtype, device=x.device) if graph is None else graph.mass
        mean, logits = None, None
        if self.channel_mlp is not None and self.node_mlp is not None:
            weight = self.node_mlp.projection(dtype)
            logits, mean, x = dispatch.project(x, weight, mass, batch, batch_size)
        else:
            features = x.to(dtype)
            if self.channel_mlp is not None:
                mean = functional.graph_mean(mass.view(-1, 1) * features, batch, batch_size)
            if self.node_mlp is not None:
                logits = features @ self.node_mlp.projection(dtype).t()
        if self.node_mlp is not None and logits is not None:
            if graph is not None:
                logits = graph.diffuse(logits)
            logits = self.node_mlp.after_projection(logits)
        return x, mean, logits

    def _graph(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None,
        dtype: torch.dtype,
        batch: Tensor | None,
        looks: bool,
    ) -> PreparedGraph:
        settings = DiffusionSettings(self.alpha, self.steps, self.diffusion, self.add_self_loops)
        if isinstance(edge_index, PreparedGraph):
            check_prepared(edge_index, settings, x, dtype)
            return edge_index
        graph = self._cached_graph
        if graph is not None and graph.mass.device == x.device and graph.mass.dtype == dtype:
            if graph.mass.size(0) != x.size(0):
                raise ValueError(
                    f"x must have the {graph.mass.size(0)} nodes of the cached graph, got "
                    f"{x.size(0)}; use cached=False for more than one graph."
                )
            return graph
        graph = prepared(edge_index, edge_weight, x.size(0), dtype, settings, batch, looks)
        # A graph with learned weights is part of one backward pass.
        if self.cached and not graph.mass.requires_grad and not torch.compiler.is_compiling():
            self._cached_graph = graph
        return graph

    def __repr__(self) -> str:
        """With the arguments that differ from their defaults."""
        told = [str(self.channels)]
        for name, parameter in signature(GReLU).parameters.items():
            default, value = parameter.default, getattr(self, name, parameter.default)
            if name == "diagonal":
                default = self.mode == "calibrated" and self.hidden is None
            if name != "channels" and value != default:
                told.append(f"{name}={value!r}")
        return f"{self.__class__.__name__}({', '.join(told)})"
