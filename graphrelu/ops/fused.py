"""Fused: the calibrated GReLU with two segments as one operation: on a CPU in compiled loops, on a
GPU in a kernel of which one program takes a graph.

On a batch of 128 molecules the equations make sixty passes over the features; these loops make five
(0.4 ms against 7.2 ms with 64 channels, forward and backward, on one core).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrelu import functional
from graphrelu.functional import Form, Kept, Weights
from graphrelu.ops import (
    custom_operator,
    differentiated,
    has_values,
    launcher,
    one_by_one,
    run_loop,
    uses_loops,
    uses_triton,
    with_signature,
)
from graphrelu.ops.diffuse import CSR, DiffusionSettings, PreparedGraph, distinct

# Of a graph, on average: beyond, one program of a GPU takes longer than the launches of the chain.
MAX_NODES = 4096


class _Given(NamedTuple):
    """What else both passes are given: the graph (in the backward pass the transposed one), what
    dropout leaves, and constants."""

    mass: Tensor
    rowptr: Tensor
    col: Tensor
    value: Tensor
    batch: Tensor | None
    kept_nodes: Tensor | None
    kept_channels: Tensor | None
    batch_size: int
    alpha: float
    steps: int
    scale: float
    temperature: float
    gamma_max: float
    negative_slope: float

    def run(self, name: str, arrays: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """A pass in compiled loops."""
        sizes = *results[0].shape, self.batch_size, self.steps, torch.get_num_threads()
        others = self.alpha, self.scale, self.temperature, self.gamma_max, self.negative_slope
        run_loop(name, (*arrays, *self[:7], *results), *sizes, *others)


_GIVEN = (
    "Tensor mass, Tensor rowptr, Tensor col, Tensor value, Tensor? batch, Tensor? kept_nodes, "
    "Tensor? kept_channels, SymInt batch_size, float alpha, int steps, float scale, "
    "float temperature, float gamma_max, float negative_slope"
)


_on_gpu, _backward_on_gpu = launcher("fused", "forward"), launcher("fused", "backward")


def _fused(
    x: Tensor, node_weight: Tensor, channel_weight: Tensor, channel_bias: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    """The output; and the mean of each graph `[B, C]`, its slopes and intercepts `[B, 2 * K, C]`,
    the diffused logits `[N]` and the weights `[N]`, for the backward pass."""
    given = _Given(*rest)
    if uses_triton(x):
        return _on_gpu(x, node_weight, channel_weight, channel_bias, given)
    found = _fused_shapes(x, node_weight, channel_weight, channel_bias, *rest)
    given.run("forward", (x, node_weight, channel_weight, channel_bias), found)
    return found


def _fused_backward(
    grad: Tensor,
    x: Tensor,
    node_weight: Tensor,
    channel_weight: Tensor,
    mean: Tensor,
    parameters: Tensor,
    logits: Tensor,
    gamma: Tensor,
    *rest: Any,
) -> tuple[Tensor, ...]:
    """The gradients of the features, of the node weight, and of the channels' weight and bias."""
    given, seen = _Given(*rest), (x, node_weight, channel_weight, mean, parameters, logits, gamma)
    if uses_triton(x):
        return _backward_on_gpu(grad, *seen, given)
    found = _fused_backward_shapes(grad, *seen)
    given.run("backward", (grad, *seen), found)
    return found


def _fused_shapes(
    x: Tensor, node_weight: Tensor, channel_weight: Tensor, channel_bias: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    batch_size, (num_nodes, channels) = _Given(*rest).batch_size, x.shape
    sizes = (channels,), (channel_weight.size(0), channels)
    per_graph = [channel_weight.new_empty(batch_size, *size) for size in sizes]
    per_node = (channel_weight.new_empty(num_nodes) for _ in range(2))
    return x.new_empty(x.shape), *per_graph, *per_node


def _fused_backward_shapes(
    grad: Tensor, x: Tensor, node_weight: Tensor, channel_weight: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    shaped = x, node_weight, channel_weight, channel_weight
    return tuple(tensor.new_empty(tensor.shape) for tensor in shaped)


_forward = custom_operator(
    "fused",
    f"(Tensor x, Tensor node_weight, Tensor channel_weight, Tensor channel_bias, {_GIVEN}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _fused,
    _fused_shapes,
)
_backward = custom_operator(
    "fused_backward",
    "(Tensor grad, Tensor x, Tensor node_weight, Tensor channel_weight, Tensor mean, "
    f"Tensor parameters, Tensor logits, Tensor gamma, {_GIVEN}) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    _fused_backward,
    _fused_backward_shapes,
)


@with_signature
class _Fused(torch.autograd.Function):
    """A symmetric matrix has no transposed one: a compiler refuses the same tensor twice."""

    @staticmethod
    def forward(
        x: Tensor,
        node_weight: Tensor,
        channel_weight: Tensor,
        channel_bias: Tensor,
        mass: Tensor,
        rowptr: Tensor,
        col: Tensor,
        value: Tensor,
        rowptr_t: Tensor | None,
        col_t: Tensor | None,
        value_t: Tensor | None,
        batch: Tensor | None,
        kept_nodes: Tensor | None,
        kept_channels: Tensor | None,
        batch_size: int,
        settings: DiffusionSettings,
        form: Form,
    ) -> tuple[Tensor, ...]:
        given = mass, rowptr, col, value, batch, kept_nodes, kept_channels, batch_size
        rest = *given, *_constants(settings, form)
        found: tuple[Tensor, ...] = _forward(x, node_weight, channel_weight, channel_bias, *rest)
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.batch_size, ctx.settings, ctx.form = inputs
        ctx.save_for_backward(*tensors, *output[1:])
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # of which gradients would be zeros

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # asked for once, as non-reentrant checkpoints require
        if grad is None:  # of an output that nothing depends on
            return (None,) * 17
        inputs, mass, matrix, transposed = saved[:4], saved[4], CSR(*saved[5:8]), CSR(*saved[8:11])
        batch, *kept = saved[11:14]
        if transposed.col is None:
            transposed = matrix
        if torch.is_grad_enabled():
            graph = PreparedGraph(ctx.settings, mass, (matrix, transposed))
            masks = None if kept[0] is None else Kept(*kept)

            def equations(x: Tensor, *weights: Tensor) -> Tensor:
                rest = Weights(*weights), ctx.form, batch, ctx.batch_size, masks
                factors = functional.hyperfunction(x, mass, graph.diffuse, *rest)
                return functional.apply(x, *factors, ctx.form.base_slopes, batch)

            return *differentiated(equations, inputs, grad), *([None] * 13)
        given = mass, *transposed, batch, *kept, ctx.batch_size
        rest = *given, *_constants(ctx.settings, ctx.form)
        return *_backward(grad, *inputs[:3], *saved[14:], *rest), *([None] * 13)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        """One replica at a time: their loops take longer than the calls."""
        return one_by_one(_Fused.apply, info, in_dims, *inputs)


def _constants(settings: DiffusionSettings, form: Form) -> tuple[float, ...]:
    own = form.scale, form.temperature, form.gamma_max, form.negative_slope
    return float(settings.alpha), settings.steps, *map(float, own)


def fits(
    x: Tensor, graph: PreparedGraph, batch: Tensor | None, batch_size: int, form: Form
) -> bool:
    """Whether there are loops, or a kernel, for these features, this graph and this form."""
    if (form.mode, form.K) != ("calibrated", 2) or graph.matrices is None:
        return False
    if graph.matrices[0].col.dtype != torch.int32:
        return False
    if not uses_triton(x):
        return uses_loops(x)
    # Below a vmap, the chain takes all replicas of one graph at once.
    is_alone = batch is not None or torch.compiler.is_compiling() or has_values(x)
    return is_alone and 0 < x.size(0) <= MAX_NODES * batch_size


def fused(
    x: Tensor,
    weights: Weights,
    graph: PreparedGraph,
    batch: Tensor | None,
    batch_size: int,
    form: Form,
    kept: Kept | None = None,
) -> Tensor:
    """The equations as one operation, where it :func:`fits`.

    Args:
        x: `[N, C]`.
        weights: With those of the channels, `[2 * K, C]`, or `[K, C]` without intercepts.
        graph: With indices of 32 bits.
        batch: The graph of each node, sorted, `[N]`; none where `B` is one.
        batch_size: `B`.
        form: Calibrated, with two segments.
        kept: What dropout leaves.
    """
    assert graph.matrices is not None
    node, *channels = weights
    if node is None:  # all nodes have the weight 1
        node = graph.mass.new_zeros(1, x.size(1))
    if not form.bias:  # without intercepts, theirs are zero
        channels = [F.pad(weight, (0, 0, 0, form.K)) for weight in channels if weight is not None]
        form = form._replace(bias=True)
    matrices, masks = distinct(*graph.matrices), kept or (None, None)
    rest = batch, *masks, batch_size, graph.settings, form
    out: Tensor = _Fused.apply(x, node, *channels, graph.mass, *matrices, *rest)[0]
    return out
