r"""The operations of which GReLU has fast implementations, and what they have in common.

The usual form is one operation, :func:`~graphrelu.ops.fused.fused`: in compiled loops on a CPU, and
for small graphs in a kernel on a GPU, where large ones take a chain of three. Everything else uses
the diffusion of that chain, and the twins in :mod:`graphrelu.functional` of the others:

- :func:`~graphrelu.ops.project.project`: from the features to the node logits and their mean.
- :func:`~graphrelu.ops.diffuse.diffuse`: personalised PageRank over a sorted matrix.
- :func:`~graphrelu.ops.apply.apply`: the piecewise maximum, straight from the factors of its
  coefficients.

Each file holds an operation with its gradient, the shapes that a compiler asks for and the rule of
:func:`torch.func.vmap`; :mod:`graphrelu.ops.triton` has a file of GPU kernels for each, and
`native.cpp` the loops for a CPU. An operation is an autograd function around custom operators:
torch's own `register_autograd` takes twice as long (27 against 13 us on a small graph), and cannot
be used below `vmap(grad(...))`. Its `forward` names all arguments, as a compiler counts them.
Second derivatives are those of :mod:`graphrelu.functional`.

Tensors may have a leading dimension of replicas, which comes from a vmap: stacked models.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# Where an operation computes.

BACKENDS = ("reference", "torch", "triton")
HAS_TRITON = find_spec("triton") is not None  # asked once: a compiler cannot trace the question
# Triton's interpreter runs the kernels of a GPU on a CPU, for tests.
INTERPRETS = bool(os.environ.get("TRITON_INTERPRET"))


def backend() -> str:
    """What `GRAPHRELU_BACKEND` asks for: nothing, or one of `BACKENDS`."""
    name = os.environ.get("GRAPHRELU_BACKEND", "")
    if name and name not in BACKENDS:
        raise ValueError(f"GRAPHRELU_BACKEND must be one of {', '.join(BACKENDS)}, got {name!r}.")
    return name


def uses_triton(x: Tensor) -> bool:
    """Whether Triton's kernels are used for `x`: on a GPU where Triton is installed, unless
    `GRAPHRELU_BACKEND` says something else."""
    if not (x.is_cuda or INTERPRETS):
        return False
    return backend() in ("", "triton") and x.dtype != torch.float64 and HAS_TRITON


def uses_loops(x: Tensor) -> bool:
    """Whether the compiled loops take `x`, unless `GRAPHRELU_BACKEND` says something else."""
    return x.is_cpu and x.dtype in _LOOPS and not backend()


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """A context without autocasting, on the device of `x`."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def has_values(*tensors: Tensor) -> bool:
    """Whether the tensors have values: under :func:`torch.compile` and inside the transforms of
    :mod:`torch.func` they have none."""
    if torch.compiler.is_compiling():
        return False
    try:
        for tensor in tensors:
            tensor.data_ptr()
    except RuntimeError:
        return False
    return True


def values_on_cpu(*tensors: Tensor) -> bool:
    """Whether the values can be read without waiting for another device."""
    return has_values(*tensors) and all(map(attrgetter("is_cpu"), tensors))


# Kernels and loops.


def launcher(module: str, name: str) -> Callable[..., Any]:
    """A function of :mod:`graphrelu.ops.triton`, imported when it is called: Triton may not be
    installed."""
    imported = cache(partial(import_module, f"graphrelu.ops.triton.{module}"))
    return lambda *arguments: getattr(imported(), name)(*arguments)


# The functions of `native.cpp`: how many arrays, whole numbers and other numbers each takes.
_ARGUMENTS = {
    "forward": (16, 5, 5),
    "backward": (19, 5, 5),
    "diffuse": (5, 3, 1),
    "check": (4, 2, 0),
    "prepare": (9, 2, 0),
}


def _load_loops() -> dict[torch.dtype, dict[str, Any]]:
    """By the type of the numbers; none where the package was installed without a compiler."""
    found: dict[torch.dtype, dict[str, Any]] = {}
    for dtype, real in ((torch.float32, ctypes.c_float), (torch.float64, ctypes.c_double)):
        name = str(dtype).removeprefix("torch.")
        try:
            library = ctypes.CDLL(str(Path(__file__).with_name(f"_native_{name}.so")))
        except OSError:  # not built, or built for another kind of machine
            return {}
        found[dtype] = {name: getattr(library, f"grelu_{name}") for name in _ARGUMENTS}
        for name, (arrays, counts, others) in _ARGUMENTS.items():
            kinds = [ctypes.c_void_p] * arrays + [ctypes.c_int64] * counts + [real] * others
            found[dtype][name].argtypes = kinds
    return found


_LOOPS = _load_loops()


def run_loop(name: str, arrays: Sequence[Any], *numbers: float) -> int:
    """Calls a function of `native.cpp` with tensors, or none where one is missing. The last says
    the type of the numbers; results are contiguous."""
    held: list[Any] = []
    pointers: list[Any] = []
    for array in arrays:
        held.append(None if array is None else array.contiguous())
        pointers.append(None if array is None else held[-1].data_ptr())
    return _LOOPS[held[-1].dtype][name](*pointers, *numbers)


# Operators of torch.


def with_signature(function: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """Keeps the signature of `forward`, which torch would ask for in every call (30 us)."""
    forward: Any = function.forward
    forward.__signature__ = signature(forward)
    return function


def custom_operator(
    name: str,
    schema: str,
    run: Callable[..., Any],
    shapes: Callable[..., Any],
    key: str = "default",
) -> Any:
    """An operator of torch: `run` computes, and `shapes` tells a compiler what comes out. Below a
    vmap, such as that of batched gradients, it runs :func:`one_by_one`."""
    name = f"graphrelu::{name}"
    torch.library.define(name, schema)
    torch.library.impl(name, key, run)
    torch.library.register_fake(name, shapes)
    operator = getattr(torch.ops.graphrelu, name.partition("::")[2]).default
    torch.library.register_vmap(name, partial(one_by_one, operator))
    return operator


def replicated(tensor: Tensor, dim: int | None, replicas: int) -> Tensor:
    """The argument of a vmap rule with its replicas in front."""
    return tensor.expand(replicas, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def one_by_one(
    function: Callable[..., Any], info: Any, in_dims: Sequence[Any], *args: Any
) -> tuple[Any, Any]:
    """A vmap rule: the function runs for one replica at a time."""
    each = []
    for i in range(info.batch_size):
        pairs = zip(args, in_dims, strict=True)
        each.append(function(*(a.select(d, i) if isinstance(d, int) else a for a, d in pairs)))
    if isinstance(each[0], Tensor):
        return torch.stack(each), 0
    return tuple(map(torch.stack, zip(*each, strict=True))), (0,) * len(each[0])


def all_at_once(
    function: Callable[..., Any], info: Any, in_dims: Sequence[Any], *args: Any
) -> tuple[Any, Any]:
    """A vmap rule of kernels that take replicas in front; below another vmap they run
    :func:`one_by_one`."""
    if args[0].dim() - (in_dims[0] is not None) > 2:
        return one_by_one(function, info, in_dims, *args)
    pairs = zip(args, in_dims, strict=True)
    each = (replicated(a, d, info.batch_size) if isinstance(a, Tensor) else a for a, d in pairs)
    return function(*each), 0


def differentiated(
    function: Callable[..., Any], inputs: Sequence[Tensor], grads: Any
) -> tuple[Tensor, ...]:
    """The gradients of the inputs in terms that can be differentiated again."""
    return torch.func.vjp(function, *inputs)[1](grads)
