from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from graphrelu import functional, kernels, projection
from graphrelu.backend import backend
from graphrelu.calibration import DEFAULT, Calibration
from graphrelu.checks import check_batch, check_features, check_options, may_look
from graphrelu.eager import is_transformed, without_autocast
from graphrelu.graph import DiffusionSettings, PreparedGraph, prepared
from graphrelu.mlp import HyperMLP
from graphrelu.running import GraphStatistics

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
        \alpha^1_{nc} &= 1 + g \, \tilde\gamma_n \, (\alpha^1_c - \bar{\alpha}^1), \qquad
        \alpha^{k > 1}_{nc} = g \, \tilde\gamma_n \, \rho \, \alpha^k_c, \qquad
        \beta^k_{nc} = \tfrac{1}{4} \, g \, \tilde\gamma_n \, \rho \, \beta^k_c

        \alpha_c, \beta_c &= \tanh \left( \mathrm{MLP} \left( \tfrac{1}{N} \textstyle\sum_n
        \mathbf{e}_n \right) \right), \qquad
        \tilde\gamma_n = \min \left( 1, \tfrac{N}{3} \, \mathrm{softmax}_n (\rho \, \mathrm{MLP}
        (\bar{\mathbf{x}}_n) / 10) \right)

    The gate :math:`g` is learned and starts at zero: a fresh module is exactly ReLU (for
    :obj:`K >= 2`) and moves away from it as training finds a use for the graph.
    :math:`\bar{\mathbf{x}}_n` is the mean of the features around a node, and :math:`\rho` the share
    of the variance of :math:`\mathrm{MLP} (\mathbf{x}_n)` that it leaves: nodes are told apart, and
    slopes below zero and intercepts adapt, as far as neighbours are alike. :math:`\bar{\alpha}^1`
    is the mean over the channels. The constants are those of
    :class:`~graphrelu.calibration.Calibration`.
    :obj:`mode="paper"` is the printed form, :math:`\alpha^k_{nc} = \gamma_n \alpha^k_c` and
    :math:`\beta^k_{nc} = \gamma_n \beta^k_c` with a plain softmax, whose activations shrink with
    the number of nodes.

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
        track_running_stats (bool, optional): If :obj:`True`, keeps running averages of the mean
            of :math:`\mathbf{e}_n`, of :math:`\rho` and of the softmax's normaliser, which in
            training are those of the batch, and uses them in evaluation: a node's output then does
            not depend on which other nodes share its batch. Not for batches of several graphs.
            (default: :obj:`False`)
        momentum (float, optional): The weight of the latest batch in the running averages, once
            there are enough of them; :obj:`None` weighs all batches the same.
            (default: :obj:`0.1`)
        sync (bool, optional): If :obj:`True`, these quantities are in training those of
            the batches of all processes of :mod:`torch.distributed`, as in
            :class:`~torch.nn.SyncBatchNorm`; all processes must make the same calls.
            (default: :obj:`False`)
        calibration (Calibration, optional): Other constants of the calibrated form than the
            default ones, see :class:`~graphrelu.calibration.Calibration`.
            (default: :obj:`None`)

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

    gate: Parameter | None
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
        hidden: int | None = None,
        negative_slope: float = 0.0,
        add_self_loops: bool = False,
        cached: bool = False,
        device: torch.device | str | None = None,
        validate: bool | None = None,
        track_running_stats: bool = False,
        momentum: float | None = 0.1,
        sync: bool = False,
        calibration: Calibration | None = None,
    ) -> None:
        super().__init__()
        check_options(
            channels,
            K,
            alpha,
            steps,
            diffusion,
            mode,
            node_wise,
            channel_wise,
            hidden,
            negative_slope,
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
        self.hidden = hidden
        self.negative_slope = negative_slope
        self.add_self_loops = add_self_loops
        self.cached = cached
        self.validate = validate
        self.calibration = DEFAULT if calibration is None else calibration
        if not (self.calibration.gated or channel_wise):
            raise ValueError(
                "calibration must have a gate with channel_wise=False, got gated=False."
            )

        self.channel_mlp: HyperMLP | None = None
        if channel_wise:
            out_channels = (2 if bias else 1) * K * channels
            self.channel_mlp = HyperMLP(channels, hidden, out_channels, True, device)
        self.node_mlp: HyperMLP | None = None
        if node_wise:
            # A bias of the last layer would cancel in the softmax.
            out_channels = 1 if channel_wise else K
            self.node_mlp = HyperMLP(channels, hidden, out_channels, False, device)
        if mode == "calibrated" and self.calibration.gated:
            self.gate = Parameter(torch.empty(1, device=device))
        else:
            self.register_parameter("gate", None)
        self.statistics: GraphStatistics | None = None
        compares_nodes = mode == "paper" or self.calibration.node_weights == "softmax"
        compares_nodes &= node_wise
        self._is_smooth = self.calibration.smooth > 0 and node_wise and topology
        self._is_smooth &= mode == "calibrated"
        kept = channel_wise or compares_nodes or self._is_smooth
        if (track_running_stats or sync) and kept:
            self.statistics = GraphStatistics(
                channels if channel_wise else None,
                None if not compares_nodes else 1 if channel_wise else K,
                None if not self._is_smooth else 1 if channel_wise else K,
                mode,
                track_running_stats,
                momentum,
                sync,
                self.calibration,
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
        if self.gate is not None:
            torch.nn.init.zeros_(self.gate)
        elif self.mode == "calibrated" and self.channel_mlp is not None:
            self.channel_mlp.zero_last_layer()
        self.reset_running_stats()
        self._cached_graph = None

    def reset_running_stats(self) -> None:
        r"""Forgets the batches that the running statistics are averages of."""
        if self.statistics is not None:
            self.statistics.reset_running_stats()

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        r"""Forward pass.

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor or EdgeIndex or SparseTensor): The edge indices, or a sparse
                transposed adjacency; or a :class:`~graphrelu.graph.PreparedGraph`, which is
                taken as it is.
            edge_weight (torch.Tensor, optional): Non-negative edge weights.
                (default: :obj:`None`)
            batch (torch.Tensor, optional): The batch vector
                :math:`\mathbf{b} \in {\{ 0, \ldots, B-1\}}^N`, sorted, which assigns each node
                to a graph. (default: :obj:`None`)
            batch_size (int, optional): The number of graphs :math:`B`. Automatically calculated
                if not given. (default: :obj:`None`)
        """
        chosen = backend(x) if isinstance(x, Tensor) else ""
        if chosen == "reference":
            return self._reference(x, edge_index, edge_weight, batch, batch_size)
        if chosen == "triton" and self._is_one_function(x, batch):
            out = self._one_function(x, edge_index, edge_weight, batch_size)
            if out is not None:
                return out
        x, gamma, slopes, intercepts, batch = self._hyperfunction(
            x, edge_index, edge_weight, batch, batch_size, update=True
        )
        return kernels.piecewise_max(x, gamma, slopes, intercepts, self._base_slopes(), batch)

    def _is_one_function(self, x: Tensor, batch: Tensor | None) -> bool:
        """Whether :mod:`graphrelu.whole` has this form, and may be used here."""
        is_common = self.hidden is None and self.channel_wise and self.node_wise
        is_common &= self.mode == "paper" or self.calibration.has_kernels
        if not is_common or self.statistics is not None or self.diffusion == "exact":
            return False
        return batch is None and x.numel() > 0 and not is_transformed()

    def _one_function(
        self, x: Tensor, edge_index: Any, edge_weight: Tensor | None, batch_size: int | None
    ) -> Tensor | None:
        """Forward and backward pass as one function; none where edge weights are learned."""
        from graphrelu import whole

        check_features(x, edge_index, edge_weight, self.channels)
        looks = may_look(x, self.validate)
        check_batch(x, None, batch_size, looks)
        dtype = torch.promote_types(x.dtype, torch.float32)
        with without_autocast(x):
            graph = None
            if self.topology:
                graph = self._graph(x, edge_index, edge_weight, dtype, None, looks)
                if graph.matrices is None:
                    return None
            assert self.node_mlp is not None
            assert self.channel_mlp is not None
            first = self.channel_mlp.first
            return whole.grelu(
                x,
                self.node_mlp.projection(dtype),
                first.weight.to(dtype),
                first.bias.to(dtype),
                self._bounded_gate(dtype),
                whole.Form(graph, self.K, self.bias, self._base_slopes(), self.calibration),
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
        batch, batch_size = check_batch(x, batch, batch_size, may_look(x, self.validate))
        statistics = self._statistics(batch)
        dtype = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            out, _, _ = functional.grelu(
                x.to(dtype),
                edge_index,
                self.channel_mlp,
                self.node_mlp,
                None if self.gate is None else self.gate.to(dtype),
                edge_weight=edge_weight,
                batch=batch,
                batch_size=batch_size,
                K=self.K,
                alpha=self.alpha,
                steps=self.steps,
                diffusion=self.diffusion,
                mode=self.mode,
                topology=self.topology,
                bias=self.bias,
                negative_slope=self.negative_slope,
                add_self_loops=self.add_self_loops,
                statistics=statistics,
                calibration=self.calibration,
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
        shape :math:`(|\mathcal{V}|, K, C)`. Running statistics stay as they are."""
        _, gamma, slopes, intercepts, batch = self._hyperfunction(
            x, edge_index, edge_weight, batch, batch_size
        )
        return functional.coefficients(gamma, slopes, intercepts, self._base_slopes(), batch)

    def gamma(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        r"""The node-wise parameters that :meth:`forward` applies to the same arguments, of shape
        :math:`(|\mathcal{V}|, 1)`, or :math:`(|\mathcal{V}|, K)` without channel block. Running
        statistics stay as they are."""
        return self._hyperfunction(x, edge_index, edge_weight, batch, batch_size)[1]

    def _base_slopes(self) -> tuple[float, ...]:
        return functional.base_slopes(self.K, self.mode, self.negative_slope)

    def _bounded_gate(self, dtype: torch.dtype) -> Tensor | None:
        if self.gate is None:
            return None
        return functional.bounded_gate(self.gate.to(dtype), self.calibration)

    def _hyperfunction(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None,
        batch: Tensor | None,
        batch_size: int | None,
        update: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        """The features to activate; the factors of their coefficients: gamma, slopes and
        intercepts; and the batch vector."""
        check_features(x, edge_index, edge_weight, self.channels)
        looks = may_look(x, self.validate)
        batch, batch_size = check_batch(x, batch, batch_size, looks)
        statistics = self._statistics(batch)
        # Half precision has neither the range for sums over a graph nor the digits for a softmax.
        dtype = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            graph = None
            if self.topology:
                graph = self._graph(x, edge_index, edge_weight, dtype, batch, looks)
            x, mean, logits, local = self._squeeze(x, dtype, graph, batch, batch_size)
            rho = None
            if local is not None and logits is not None:
                if statistics is None:
                    rho = functional.smoothness(local, logits, batch, batch_size)
                else:
                    rho = statistics.smoothness(local, logits, update)
                logits = functional.smoothed(logits, rho, batch, self.calibration)
            log_normaliser = None
            if statistics is not None:
                mean, log_normaliser = statistics(mean, logits, x.size(0), update)
            if self.channel_mlp is None or mean is None:
                slopes = x.new_ones(batch_size, self.K, self.channels, dtype=dtype)
                intercepts = torch.zeros_like(slopes)
            else:
                constants = None if self.mode == "paper" else self.calibration
                slopes, intercepts = functional.channel_parameters(
                    mean, self.channel_mlp, self.K, self.bias, constants
                )
            if logits is None:
                gamma = x.new_ones(x.size(0), 1, dtype=dtype)
            elif log_normaliser is not None:
                gamma = functional.normalized_node_parameters(
                    logits, log_normaliser, self.mode, self.calibration
                )
            elif self.mode == "paper":
                gamma = functional.node_parameters(logits, batch, batch_size)
            else:
                gamma = functional.calibrated_node_parameters(
                    logits, batch, batch_size, self.calibration
                )
            if self.mode == "calibrated":
                slopes, intercepts = functional.calibrated_channel_parameters(
                    slopes, intercepts, self._bounded_gate(dtype), self.calibration, rho
                )
        return x, gamma, slopes, intercepts, batch

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
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """`x`, the channel block's input and the node MLP's outputs, without diffusing `x`; and,
        where smoothness counts, what the node MLP makes of each node by itself.

        S (X W) = (S X) W, so the node MLP's first layer comes before the diffusion; and the mean
        of S X is a weighted sum of X.
        """
        ones = torch.ones(x.size(0), dtype=dtype, device=x.device)
        mass = ones if graph is None else graph.mass
        mean, logits, local = None, None, None
        if self.channel_mlp is not None and self.node_mlp is not None and batch is None:
            weight = self.node_mlp.projection(dtype)
            logits, total, x = projection.project_and_sum(x, weight, mass)
            mean = total / max(1, x.size(0))
        else:
            features = x.to(dtype)
            if self.channel_mlp is not None:
                mean = functional.graph_mean(mass.view(-1, 1) * features, batch, batch_size)
            if self.node_mlp is not None:
                logits = features @ self.node_mlp.projection(dtype).t()
        if self.node_mlp is not None and logits is not None:
            if graph is not None and self._is_smooth:
                local = self.node_mlp.after_projection(logits)
                logits = graph.average(logits)
            elif graph is not None:
                logits = graph.diffuse(logits)
            logits = self.node_mlp.after_projection(logits)
        return x, mean, logits, local

    def _graph(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None,
        dtype: torch.dtype,
        batch: Tensor | None,
        looks: bool,
    ) -> PreparedGraph:
        if isinstance(edge_index, PreparedGraph):
            return edge_index
        graph = self._cached_graph
        if graph is not None and graph.mass.device == x.device and graph.mass.dtype == dtype:
            if graph.mass.size(0) != x.size(0):
                raise ValueError(
                    f"x must have the {graph.mass.size(0)} nodes of the cached graph, got "
                    f"{x.size(0)}; use cached=False for more than one graph."
                )
            return graph
        settings = DiffusionSettings(self.alpha, self.steps, self.diffusion, self.add_self_loops)
        graph = prepared(edge_index, edge_weight, x.size(0), dtype, settings, batch, looks)
        if self.cached and not torch.compiler.is_compiling():
            self._cached_graph = graph
        return graph

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.channels}, K={self.K}, alpha={self.alpha}, "
            f"mode={self.mode})"
        )
