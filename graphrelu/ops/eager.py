from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def is_transformed() -> bool:
    """Whether torch.compile or torch.func is at work."""
    return torch.compiler.is_compiling() or torch._C._functorch.maybe_current_level() is not None


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Autocasting is off inside, on the device of `x`; it costs nothing where it is off already."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def with_eager_twin(
    function: type[torch.autograd.Function], forward: Callable[..., Any]
) -> Callable[..., Any]:
    """`function.apply`, or outside of torch.compile and torch.func the same without their cost.

    For torch.func a function must have a `setup_context`, and torch then inspects its signature
    on every call; and the dispatcher of custom operators takes longer than a small kernel.

    Args:
        function: Made for torch.func, with custom operators in its forward pass.
        forward: The same forward pass without custom operators.
    """

    def eager_forward(ctx: Any, *args: Any) -> Any:
        out = forward(*args)
        function.setup_context(ctx, args, out)
        return out

    twin: Any = type(
        f"Eager{function.__name__}",
        (torch.autograd.Function,),
        {"forward": staticmethod(eager_forward), "backward": staticmethod(function.backward)},
    )

    def apply(*args: Any) -> Any:
        if is_transformed():
            return function.apply(*args)
        return twin.apply(*args)

    return apply
