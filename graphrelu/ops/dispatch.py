r"""The four operations that GReLU has fast implementations of, and the choice between them.

- :func:`project`: from the features to the node logits, and to the mean of each graph.
- :func:`diffuse`: personalised PageRank over a matrix in compressed rows.
- :func:`weigh`: from the diffused logits to the weight of each node.
- :func:`apply`: the piecewise maximum, straight from the factors of its coefficients.

Each is an autograd function. Its tensors may have leading dimensions of independent replicas, which
come from :func:`torch.func.vmap`. Inside, of all but `weigh`, is a custom operator, for
:func:`torch.compile`, with one leading dimension `R`. :mod:`graphrelu.ops.cpu` and the files of
:mod:`graphrelu.ops.triton` compute the operators. Second derivatives are those of
:mod:`graphrelu.functional`.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from graphrelu import functional
from graphrelu.ops import cpu
from graphrelu.ops.cpu import CSR, can_be_read

BACKENDS = ("reference", "torch", "triton")
HAS_TRITON = find_spec("triton") is not None  # asked once: a compiler does not follow the question


def backend(x: Tensor) -> str:
    """`triton` on a GPU where it is installed, else `torch`.

    `GRAPHRELU_BACKEND` overrides it, for debugging: `reference` are the equations of
    :mod:`graphrelu.functional`, `torch` the same passes as on a CPU.
    """
    name = os.environ.get("GRAPHRELU_BACKEND", "")
    if name:
        if name not in BACKENDS:
            raise ValueError(
                f"GRAPHRELU_BACKEND must be one of {', '.join(BACKENDS)}, got {name!r}."
            )
        return name
    return "triton" if x.is_cuda and x.dtype != torch.float64 and HAS_TRITON else "torch"


def _implementation(operation: str, x: Tensor) -> Any:
    """The module that computes an operation for `x`."""
    return cpu if backend(x) != "triton" else _kernels()[operation]


@cache
def _kernels() -> dict[str, Any]:
    from graphrelu.ops.triton import apply, diffuse, project, weigh

    return {"project": project, "diffuse": diffuse, "weigh": weigh, "apply": apply}


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Autocasting is off inside, on the device of `x`."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


_COMPUTE: dict[Any, Callable[..., Any]] = {}


def _operator(
    name: str,
    compute: Callable[..., Any],
    shapes: Callable[..., Any],
    schema: str | None = None,
) -> Any:
    """A custom operator: what it computes, and empty tensors of the shapes of its outputs."""
    op = torch.library.custom_op(f"graphrelu::{name}", compute, mutates_args=(), schema=schema)
    op.register_fake(shapes)
    _COMPUTE[op] = compute
    return op


def _run(op: Any, x: Tensor, *args: Any) -> Any:
    """The operator, or its function alone where nothing compiles it: on a small graph the
    dispatcher of custom operators takes longer than the function."""
    return _COMPUTE[op](x, *args) if can_be_read(x) else op(x, *args)


@cache
def _plain(function: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """The same function without `setup_context`, which only :mod:`torch.func` needs: torch binds
    the arguments of such functions to their names, which takes as long as a pass over a small
    graph."""

    def forward(ctx: Any, *args: Any) -> Any:
        out = function.forward(*args)
        function.setup_context(ctx, args, out)
        return out

    body = {"forward": staticmethod(forward), "backward": staticmethod(function.backward)}
    return type(function.__name__, (torch.autograd.Function,), body)


def _call(function: type[torch.autograd.Function], *args: Any) -> Any:
    """An autograd function, by its forward pass alone where nothing is differentiated: in inference
    and in most backward passes."""
    transformed = torch._C._are_functorch_transforms_active()  # of other tensors, maybe
    if transformed or not can_be_read(*(a for a in args if isinstance(a, Tensor))):
        return function.apply(*args)
    return _plain(function).apply(*args) if torch.is_grad_enabled() else function.forward(*args)


def replicated(tensor: Tensor, dim: int | None, replicas: int) -> Tensor:
    """The argument of a vmap rule with its replicas in front."""
    return tensor.expand(replicas, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _shared(tensor: Tensor | None, dim: int | None, info: Any) -> Tensor | None:
    """A number for each node, which all replicas may share."""
    if tensor is None or (dim is None and tensor.dim() == 1):
        return tensor
    return replicated(tensor, dim, info.batch_size)


def _stacked(tensor: Tensor, dims: int) -> Tensor:
    """One dimension of replicas before the last `dims`, as the operators have it."""
    leading = tensor.dim() - dims
    return tensor.flatten(0, leading - 1) if leading else tensor.unsqueeze(0)


def _graphs(batch: Tensor | None) -> Tensor | None:
    return None if batch is None else _stacked(batch, 1)


def _unstacked(tensor: Tensor, leading: torch.Size) -> Tensor:
    """The replicas apart again. Not a view in autograd's sense: torch refuses in-place operations
    on a view that an autograd function returns, and nobody else holds `tensor`."""
    return torch.ops.aten._unsafe_view(tensor, (*leading, *tensor.shape[1:]))


# Project: `x [R, N, C]`, `weight [R, H, C]`, `mass [1 or R, N]`, `batch [1 or R, N]`.

# Schemas are written out: torch 2.6 does not read every annotation.
_PROJECTION = "Tensor x, Tensor weight, Tensor mass, Tensor? batch"


def _project_compute(
    x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None, batch_size: int
) -> tuple[Tensor, Tensor]:
    return _implementation("project", x).project(x, weight, mass, batch, batch_size)


def _project_shapes(
    x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None, batch_size: int
) -> tuple[Tensor, Tensor]:
    replicas, num_nodes, channels = x.shape
    projection = weight.new_empty(replicas, num_nodes, weight.size(1))
    return projection, weight.new_empty(replicas, batch_size, channels)


_project = _operator(
    "project",
    _project_compute,
    _project_shapes,
    f"({_PROJECTION}, SymInt batch_size) -> (Tensor, Tensor)",
)


def _project_backward_compute(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """The gradients of x and weight."""
    return _implementation("project", x).project_backward(x, *rest)


def _project_backward_shapes(x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(weight)


_project_backward = _operator(
    "project_backward",
    _project_backward_compute,
    _project_backward_shapes,
    f"({_PROJECTION}, Tensor grad_projection, Tensor grad_mean) -> (Tensor, Tensor)",
)


class _Project(torch.autograd.Function):
    """Also hands `x` on: what :func:`apply` sends back for it and the gradient of this pass are
    then added in one pass, in place, instead of being two tensors and their sum."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None, batch_size: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        leading = x.shape[:-2]
        graphs = _graphs(batch)
        tensors = _stacked(x, 2), _stacked(weight, 2), _stacked(mass, 1), graphs
        projection, mean = _run(_project, *tensors, batch_size)
        return _unstacked(projection, leading), _unstacked(mean, leading), x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[:4])
        ctx.batch_size = inputs[4]
        if not inputs[0].requires_grad:
            ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)  # zeros for an `x` that needs no gradient

    @staticmethod
    def backward(
        ctx: Any, grad_projection: Tensor | None, grad_mean: Tensor | None, grad_x: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, weight, mass, batch = ctx.saved_tensors
        if grad_projection is None:
            grad_projection = weight.new_zeros(*x.shape[:-1], weight.size(-2))
        if grad_mean is None:
            grad_mean = weight.new_zeros(*x.shape[:-2], ctx.batch_size, x.size(-1))
        if not ctx.needs_input_grad[0] and not ctx.needs_input_grad[2]:
            return None, grad_projection.mT @ x.to(weight.dtype), None, None, None
        if grad_x is None:
            grad_x = torch.zeros_like(x)
        graphs = _graphs(batch)
        tensors = _stacked(x, 2), _stacked(weight, 2), _stacked(mass, 1), graphs
        grads = [_stacked(t, 2) for t in (grad_projection, grad_mean)]
        leading = x.shape[:-2]
        if ctx.needs_input_grad[2] or torch.is_grad_enabled():
            pass  # learned edge weights, or a second derivative
        elif can_be_read(x, weight, mass, grad_projection, grad_mean, grad_x):
            # Nobody else holds this gradient: it comes from `apply`, which made it.
            own, grad_weight = _implementation("project", x).project_backward(
                *tensors, *grads, _stacked(grad_x, 2)
            )
            return _unstacked(own, leading), _unstacked(grad_weight, leading), None, None, None
        elif torch.compiler.is_compiling():
            own, grad_weight = _project_backward(*tensors, *grads)
            own = grad_x + _unstacked(own, leading)
            return own, _unstacked(grad_weight, leading), None, None, None
        # In terms that autograd and vmap can follow.
        features = x.to(weight.dtype)
        if batch is None:
            of_node = grad_mean / max(1, x.size(-2))
        else:
            graphs = batch.expand(x.shape[:-1])
            nodes = torch.zeros_like(grad_mean[..., 0])
            nodes = nodes.scatter_add(-1, graphs, torch.ones_like(features[..., 0])).clamp(min=1)
            of_node = grad_mean / nodes.unsqueeze(-1)
            of_node = of_node.gather(-2, graphs.unsqueeze(-1).expand(x.shape))
        own = grad_projection @ weight + mass.unsqueeze(-1) * of_node
        grad_mass = (features * of_node).sum(dim=-1).sum_to_size(mass.shape)
        return grad_x + own.to(x.dtype), grad_projection.mT @ features, grad_mass, None, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        x: Tensor,
        weight: Tensor,
        mass: Tensor,
        batch: Tensor | None,
        batch_size: int,
    ) -> tuple[Any, Any]:
        x, weight = (
            replicated(t, dim, info.batch_size)
            for t, dim in zip((x, weight), in_dims, strict=False)
        )
        own = (_shared(t, dim, info) for t, dim in zip((mass, batch), in_dims[2:], strict=False))
        return _Project.apply(x, weight, *own, batch_size), (0, 0, 0)


def project(
    x: Tensor,
    weight: Tensor,
    mass: Tensor,
    batch: Tensor | None = None,
    batch_size: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """`x @ weight.T` `[N, H]`, the mean of `mass * x` over the nodes of each graph `[B, C]`, and
    `x`, of which this must be the only use but one: :func:`apply`."""
    out: tuple[Tensor, Tensor, Tensor] = _call(_Project, x, weight, mass, batch, batch_size)
    return out


# Diffuse: `x [N, F]` over a square matrix; a vmap joins the columns, or the matrices.


def _diffuse_compute(
    x: Tensor, rowptr: Tensor, col: Tensor, value: Tensor, alpha: float, steps: int, diffusion: str
) -> Tensor:
    x = x.contiguous()
    with without_autocast(x):
        diffuse = _implementation("diffuse", x).diffuse
        return diffuse(x, CSR(rowptr, col, value), alpha, steps, diffusion)


def _diffuse_shapes(x: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_diffuse = _operator("diffuse", _diffuse_compute, _diffuse_shapes)


class _Diffuse(torch.autograd.Function):
    """The gradient of :math:`S x` is :math:`S^T` applied to the incoming gradient."""

    @staticmethod
    def forward(
        x: Tensor,
        rowptr: Tensor,
        col: Tensor,
        value: Tensor,
        rowptr_t: Tensor,
        col_t: Tensor,
        value_t: Tensor,
        alpha: float,
        steps: int,
        diffusion: str,
    ) -> Tensor:
        return _run(_diffuse, x, rowptr, col, value, alpha, steps, diffusion)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:7])  # the graph, not the features
        ctx.settings = inputs[7:]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # asked for once, as non-reentrant checkpoints require
        matrix, transposed = saved[:3], saved[3:]
        grad = _call(_Diffuse, grad.contiguous(), *transposed, *matrix, *ctx.settings)
        return grad, *([None] * 9)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, *args: Any) -> tuple[Tensor, int]:
        if all(dim is None for dim in in_dims[1:7]):
            x = x.movedim(in_dims[0], 1)  # [N, R, F]: one product serves all R
            return _Diffuse.apply(x.flatten(1), *args).view(x.shape), 1
        # Each replica has a graph of its own: all of them are one graph, block by block.
        x, *parts = (
            replicated(arg, dim, info.batch_size)
            for arg, dim in zip((x, *args[:6]), in_dims[:7], strict=True)
        )
        matrices = []
        for rowptr, col, value in (parts[:3], parts[3:]):
            matrices += [*cpu.block_diagonal(rowptr, col, x.size(1)), value.flatten()]
        return _Diffuse.apply(x.flatten(0, 1), *matrices, *args[6:]).view(x.shape), 0


def diffuse(
    x: Tensor, matrix: CSR, transposed: CSR, alpha: float, steps: int, diffusion: str
) -> Tensor:
    """The fast twin of :func:`functional.pagerank`, for power iteration and Chebyshev."""
    if matrix[0] is transposed[0] and torch.compiler.is_compiling():
        transposed = CSR(*(part.clone() for part in transposed))  # no tensor twice in a call
    out: Tensor = _call(_Diffuse, x, *matrix, *transposed, alpha, steps, diffusion)
    return out


# Weigh: `logits [R, N, H]`, `batch [1 or R, N]`.


class _Weigh(torch.autograd.Function):
    @staticmethod
    def forward(
        logits: Tensor, form: functional.Form, batch: Tensor | None, batch_size: int
    ) -> Tensor:
        graphs = _graphs(batch)
        weigh = _implementation("weigh", logits).weigh
        return _unstacked(weigh(_stacked(logits, 2), form, graphs, batch_size), logits.shape[:-2])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logits, ctx.form, batch, ctx.batch_size = inputs
        ctx.save_for_backward(logits, batch)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, batch = ctx.saved_tensors
        leading = logits.shape[:-2]
        if torch.is_grad_enabled() or not can_be_read(grad):

            def weights(logits: Tensor, batch: Tensor | None) -> Tensor:
                return functional.node_weights(logits, ctx.form, batch, ctx.batch_size)

            for _ in leading:
                own_graphs = batch is not None and batch.dim() > 1
                weights = torch.func.vmap(weights, in_dims=(0, 0 if own_graphs else None))
            derivative = torch.func.vjp(lambda logits: weights(logits, batch), logits)[1]
            return *derivative(grad), None, None, None
        graphs = _graphs(batch)
        passes = _implementation("weigh", logits)
        own = passes.weigh_backward(
            _stacked(grad, 2), _stacked(logits, 2), ctx.form, graphs, ctx.batch_size
        )
        return _unstacked(own, leading), None, None, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        logits: Tensor,
        form: functional.Form,
        batch: Tensor | None,
        batch_size: int,
    ) -> tuple[Tensor, int]:
        logits = replicated(logits, in_dims[0], info.batch_size)
        return _Weigh.apply(logits, form, _shared(batch, in_dims[2], info), batch_size), 0


def weigh(
    logits: Tensor, form: functional.Form, batch: Tensor | None = None, batch_size: int = 1
) -> Tensor:
    """:func:`functional.node_weights`, on a GPU in one launch. A compiler makes few launches of the
    equations itself."""
    if torch.compiler.is_compiling() or backend(logits) != "triton":
        return functional.node_weights(logits, form, batch, batch_size)
    if batch is None and logits.size(0) > functional.LONG_COLUMN:  # too many for one program
        return functional.node_weights(logits, form)
    out: Tensor = _call(_Weigh, logits, form, batch, batch_size)
    return out


# Apply: `x [R, N, C]`, `gamma [R, N, 1 or K]`, `parameters [R, B, 2, K, C]`, `batch [N]`.

_FACTORS = "Tensor x, Tensor gamma, Tensor parameters, float[] base, Tensor? batch"


def _apply_compute(x: Tensor, *factors: Any) -> Tensor:
    return _implementation("apply", x).apply(x, *factors)


def _apply_shapes(x: Tensor, gamma: Tensor, parameters: Tensor, *rest: Any) -> Tensor:
    replicas = max(x.size(0), gamma.size(0), parameters.size(0))
    return x.new_empty(replicas, x.size(1), x.size(2))


_apply = _operator("apply", _apply_compute, _apply_shapes, f"({_FACTORS}) -> Tensor")


def _apply_backward_compute(grad: Tensor, x: Tensor, *factors: Any) -> tuple[Tensor, ...]:
    """The gradients of x, which has no rows where it is not needed, gamma and parameters."""
    return _implementation("apply", x).apply_backward(grad, x, *factors)


def _apply_backward_shapes(grad: Tensor, x: Tensor, *factors: Any) -> tuple[Tensor, ...]:
    own = (t.new_empty(grad.size(0), *t.shape[1:]) for t in factors[:2])
    return torch.empty_like(grad if factors[-1] else grad[:, :0]), *own


_SCHEMA = f"(Tensor grad, {_FACTORS}, bool needs_x) -> (Tensor, Tensor, Tensor)"
_apply_backward = _operator(
    "apply_backward", _apply_backward_compute, _apply_backward_shapes, _SCHEMA
)


def _map_apply(
    function: type[torch.autograd.Function], info: Any, in_dims: tuple[Any, ...], *args: Any
) -> tuple[Any, Any]:
    """The vmap rule of both functions: the mapped dimension is one of replicas. Where `batch` is
    mapped, too, the mapped dimension joins the nodes, and each of its places has own graphs."""
    place = 3 if function is _Apply else 4
    tensors, (base, batch, *needs_x) = list(args[:place]), args[place:]
    size, batch_dim = info.batch_size, in_dims[place + 1]
    tensors = [replicated(t, dim, size) for t, dim in zip(tensors, in_dims, strict=False)]
    if batch_dim is None:
        outs = function.apply(*tensors, base, batch, *needs_x)
        return outs, 0 if isinstance(outs, Tensor) else (0,) * len(outs)
    # Nodes are the last dimension but one; graphs, of the parameters, the last but three.
    dims = [2] * (len(tensors) - 1) + [4]
    first_graph = tensors[-1].size(-4) * torch.arange(size, device=batch.device)
    batch = (batch.movedim(batch_dim, 0) + first_graph.view(-1, 1)).flatten()
    joined = [t.movedim(0, -d - 1).flatten(-d - 1, -d) for t, d in zip(tensors, dims, strict=True)]
    outs = function.apply(*joined, base, batch, *needs_x)
    if isinstance(outs, Tensor):
        return outs.unflatten(-2, (size, outs.size(-2) // size)), outs.dim() - 2
    outs = [
        out.unflatten(-d, (size, out.size(-d) // size))
        for out, d in zip(outs, dims[1:], strict=True)
    ]
    return tuple(outs), tuple(out.dim() - d - 1 for out, d in zip(outs, dims[1:], strict=True))


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor,
        gamma: Tensor,
        parameters: Tensor,
        base: tuple[float, ...],
        batch: Tensor | None,
    ) -> Tensor:
        factors = _stacked(x, 2), _stacked(gamma, 2), _stacked(parameters, 4)
        return _unstacked(_run(_apply, *factors, base, batch), x.shape[:-2])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *factors, ctx.base, batch = inputs
        ctx.save_for_backward(*factors, batch)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *factors, batch = ctx.saved_tensors
        needs_x = ctx.needs_input_grad[0]
        grads = _call(_ApplyBackward, grad, *factors, ctx.base, batch, needs_x)
        return grads[0] if needs_x else None, *grads[1:], None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        return _map_apply(_Apply, info, in_dims, *args)


class _ApplyBackward(torch.autograd.Function):
    """A function of its own, so that second derivatives exist (by the reference)."""

    @staticmethod
    def forward(
        grad: Tensor,
        x: Tensor,
        gamma: Tensor,
        parameters: Tensor,
        base: tuple[float, ...],
        batch: Tensor | None,
        needs_x: bool,
    ) -> tuple[Tensor, ...]:
        nodes = (_stacked(t, 2) for t in (grad, x, gamma))
        outs = _run(_apply_backward, *nodes, _stacked(parameters, 4), base, batch, needs_x)
        return tuple(_unstacked(out, x.shape[:-2]) for out in outs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.base, batch, ctx.needs_x = inputs
        ctx.save_for_backward(*tensors, batch)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, batch = ctx.saved_tensors
        known = slice(0 if ctx.needs_x else 1, None)

        def first_order(grad: Tensor, *factors: Tensor) -> tuple[Tensor, ...]:
            def forward(x: Tensor, gamma: Tensor, parameters: Tensor) -> Tensor:
                alpha, beta = functional.coefficients(gamma, parameters, ctx.base, batch)
                return functional.piecewise_max(x, alpha, beta)

            derivatives: tuple[Tensor, ...] = torch.func.vjp(forward, *factors)[1](grad)
            return derivatives[known]

        for _ in tensors[0].shape[:-2]:
            first_order = torch.func.vmap(first_order)
        return *torch.func.vjp(first_order, *tensors)[1](grads[known]), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        return _map_apply(_ApplyBackward, info, in_dims, *args)


def apply(
    x: Tensor,
    gamma: Tensor,
    parameters: Tensor,
    base: tuple[float, ...],
    batch: Tensor | None = None,
) -> Tensor:
    """:func:`functional.coefficients` and :func:`functional.piecewise_max` in one. Neither the
    coefficients `[N, K, C]` nor a mask is stored: the backward pass chooses the segments again.

    Args:
        x: `[N, C]`.
        gamma: `[N, 1]`, or `[N, K]` with a weight for each segment; its type is computed in.
        parameters: Slopes and intercepts of the channels, `[B, 2, K, C]`.
        base: The `K` base slopes.
        batch: `[N]`, the graph of each node; none where `B` is one.
    """
    out: Tensor = _call(_Apply, x, gamma, parameters, base, batch)
    return out
