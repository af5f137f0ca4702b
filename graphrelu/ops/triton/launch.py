"""Starts Triton's kernels at less cost for the host than Triton does.

Triton binds, inspects and specialises all arguments on every launch, which takes longer than many a
kernel runs. Here what it found is remembered: two launches that agree in all that Triton compiles
for (constants, whole numbers, the types of tensors, whether their addresses are multiples of 16
bytes) start the same binary. Wherever this cannot be relied upon, Triton starts the kernel itself.
"""

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton import JITFunction

# What is called here is no public interface: these versions have it in this form.
_IS_KNOWN = (
    triton.__version__.startswith(("3.6.", "3.7.", "3.8.", "3.9.")) and not torch.version.hip
)
_MEMORY_SIZE = 1024


class _Binary(NamedTuple):
    """A compiled kernel, and what its launcher takes before and after the kernel's arguments."""

    kernel: Any  # kept, as its identity is part of the key
    compiled: Any
    run: Callable[..., None]
    handles: tuple[Any, ...]
    constants: tuple[int, ...]


_memory: dict[tuple[Any, ...], _Binary] = {}


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    tensors: tuple[Tensor, ...],
    integers: tuple[int, ...],
    floats: tuple[float, ...] = (),
    num_warps: int = 4,
    **constants: int,
) -> None:
    """`kernel[grid](*tensors, *integers, *floats, **constants)`, on the device of the tensors.

    Args:
        kernel: Its parameters come in this order.
        grid: The number of programs along each dimension.
        tensors: All on one device.
        integers: From 0.
        floats: Never part of what is compiled.
        num_warps: Of a program.
        **constants: The `constexpr` parameters.
    """
    device = tensors[0].get_device()
    if device >= 0 and device != torch._C._cuda_getDevice():
        with torch.cuda.device(device):
            return launch(kernel, grid, tensors, integers, floats, num_warps, **constants)
    floats = tuple(map(float, floats))  # Triton would compile for whole numbers
    if not _may_remember(kernel, device):
        kernel[grid](*tensors, *integers, *floats, num_warps=num_warps, **constants)
        return None
    addresses = [tensor.data_ptr() for tensor in tensors]
    key = (
        id(kernel),  # Triton's own hash takes its time
        device,
        num_warps,
        *constants,
        *constants.values(),
        *[tensor.dtype for tensor in tensors],
        *integers,
    )
    if reduce(or_, addresses) & 15:
        key += tuple([address & 15 == 0 for address in addresses])
    binary = _memory.get(key)
    if binary is None:
        compiled = kernel[grid](*tensors, *integers, *floats, num_warps=num_warps, **constants)
        if compiled is not None:  # a hook may have kept it from being compiled
            _remember(key, kernel, compiled, constants)
        return None
    _, _, run, handles, rest = binary
    stream = torch._C._cuda_getCurrentRawStream(device)
    run(*grid, stream, *handles, *addresses, *integers, *floats, *rest)
    return None


def _may_remember(kernel: Any, device: int) -> bool:
    """Whether Triton would do nothing more than start the kernel: no interpreter, no hooks."""
    if device < 0 or not _IS_KNOWN or type(kernel) is not JITFunction:
        return False
    runtime = triton.knobs.runtime
    return not (
        runtime.launch_enter_hook.calls
        or runtime.launch_exit_hook.calls
        or runtime.debug
        or runtime.add_stages_inspection_hook
        or kernel.pre_run_hooks
    )


def _remember(key: tuple[Any, ...], kernel: Any, compiled: Any, constants: dict[str, int]) -> None:
    if len(_memory) >= _MEMORY_SIZE:
        _memory.clear()
    handles = (compiled.function, compiled.packed_metadata, None, None, None)  # no hooks
    names = [parameter.name for parameter in kernel.params if parameter.is_constexpr]
    rest = tuple(constants[name] for name in names)
    _memory[key] = _Binary(kernel, compiled, compiled.run, handles, rest)


def workspace(like: Tensor, *sizes: int) -> tuple[Tensor, ...]:
    """Vectors of at least these sizes, in the type of `like`, that share one allocation; each
    begins where Triton's widest loads can."""
    rounded = [size + -size % 32 for size in sizes]
    return like.new_empty(sum(rounded)).split_with_sizes(rounded)
