"""What stands before the methods of a converted model's modules.

The `forward` of a module is its own; a :class:`Call` stands before it, on the instance. The
outermost one opens a :class:`~graphrelu.conversion.run.Run`, which activations ask for the GReLU of
their place: modules through their own :class:`Call`, functions through the :class:`Interceptor`.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode,
    _pop_mode_temporarily,
)
from torch_geometric.nn import EdgePooling
from torch_geometric.nn import Sequential as GraphSequential

from graphrelu.context import Graph, scopes
from graphrelu.conversion.activations import FUNCTIONS, asked_of_function, asked_of_module
from graphrelu.conversion.graphs import Args, Kwargs, parameter_names, read
from graphrelu.conversion.run import Conversion, Frame, Run, current_run


class Call:
    """A method of a module of a converted model, with what the model needs to know of its calls."""

    opens_run = False

    def __init__(
        self, module: torch.nn.Module, method: str, name: str, conversion: Conversion
    ) -> None:
        self.module = module
        self.method = method
        self.name = name
        self.conversion = conversion
        self.names = parameter_names(module, method)
        self.original = vars(module).get(method)  # of the instance, else that of the class

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return self.original or getattr(type(self.module), self.method).__get__(self.module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.conversion.calls_functions:
            return _uncompiled(self, args, kwargs)
        return _call(self, args, kwargs)

    def __getstate__(self) -> dict[str, Any]:
        # What PyG's Sequential has on the instance is written anew for each copy.
        written = isinstance(self.module, GraphSequential)
        return {**vars(self), "original": None if written else self.original}

    def run_original(self, args: Args, kwargs: Kwargs) -> Any:
        if self.original is not None:
            return self.original(*args, **kwargs)
        return getattr(type(self.module), self.method)(self.module, *args, **kwargs)

    def within(self, run: Run, args: Args, kwargs: Kwargs) -> Any:
        """The call, in a run; a layer's."""
        out = self.run_original(args, kwargs)
        run.leave(self.module, self.name)
        return out

    def without(self, args: Args, kwargs: Kwargs) -> Any:
        """The call outside of any run."""
        return self.run_original(args, kwargs)


class Owner(Call):
    """A method whose code may call activations."""

    opens_run = True

    def within(self, run: Run, args: Args, kwargs: Kwargs) -> Any:
        guess = run.found is None and self.method == "forward"
        run.see(read(self.names, args, kwargs, self.conversion.graph, guess))
        run.frames.append(Frame(self.module, self.name))
        try:
            out = self.run_original(args, kwargs)
        finally:
            run.frames.pop()
        run.leave(self.module, self.name)
        if self.method == "reset_parameters" and hasattr(self.module, "grelus"):
            self.module.grelus.reset_parameters()  # type: ignore[union-attr, operator]
        return out


class Closed(Call):
    """A module inside of which activations stay."""

    def within(self, run: Run, args: Args, kwargs: Kwargs) -> Any:
        run.inside += 1
        try:
            out = self.run_original(args, kwargs)
        finally:
            run.inside -= 1
        run.leave(self.module, self.name)
        return out


class Convolution(Closed):
    """Its graph is that of the activations after it."""

    def within(self, run: Run, args: Args, kwargs: Kwargs) -> Any:
        run.found = None  # of a graph that cannot be read nothing is known
        run.see(read(self.names, args, kwargs, None, guess=True))
        return super().within(run, args, kwargs)


class Pooling(Convolution):
    """It returns a smaller graph, which is that of what follows."""

    def within(self, run: Run, args: Args, kwargs: Kwargs) -> Any:
        out = super().within(run, args, kwargs)
        # A single graph needs no batch vector, though the layer makes one.
        batch = out[2 if isinstance(self.module, EdgePooling) else 3] if run.batches else None
        run.see(Graph(out[1], batch=batch, num_nodes=out[0].size(0)))
        return out


class Attention(Closed):
    """It has a faster way, which rounds otherwise, and takes it where nothing intercepts."""

    def within(self, run: Run, args: Args, kwargs: Kwargs) -> Any:
        compiles = torch.compiler.is_compiling()
        if compiles or not isinstance(_get_current_function_mode(), Interceptor):
            return super().within(run, args, kwargs)
        with _pop_mode_temporarily():
            return super().within(run, args, kwargs)


class Activation(Call):
    """An activation module; it has one GReLU for each place where it is called."""

    def within(self, run: Run, args: Args, kwargs: Kwargs) -> Any:
        if run.inside or not run.frames:
            return self.run_original(args, kwargs)
        asked = asked_of_module(self.module, args, kwargs)
        return run.activate(asked, self.name, self.module, lambda: self.run_original(args, kwargs))

    def without(self, args: Args, kwargs: Kwargs) -> Any:
        raise RuntimeError(
            f"The activation {self.name!r} has no graph: call the converted model, or one of its "
            "methods, and not its parts one by one."
        )


class Template(Call):
    """PyG's Sequential writes a new `forward` for each copy of itself; its call is put back."""

    def without(self, args: Args, kwargs: Kwargs) -> Any:
        vars(self.module).pop("forward", None)
        self.run_original(args, kwargs)
        set_call(self.module, Owner(self.module, "forward", self.name, self.conversion))

    within = without  # type: ignore[assignment]


def set_call(module: torch.nn.Module, call: Call) -> None:
    """Puts a call before a method, on the instance."""
    vars(module)[call.method] = call


def _call(call: Call, args: Args, kwargs: Kwargs) -> Any:
    run = current_run(call.conversion)
    if run is not None:
        return call.within(run, args, kwargs)
    if not call.opens_run:
        return call.without(args, kwargs)
    run = Run(call.conversion)
    scopes.stack.append(run)
    try:
        if torch.compiler.is_compiling():  # then all GReLUs stand for modules
            return call.within(run, args, kwargs)
        with Interceptor(run):
            return call.within(run, args, kwargs)
    finally:
        scopes.stack.pop()


_uncompiled = torch.compiler.disable(_call)


class Interceptor(TorchFunctionMode):
    """Sees every function of torch that a run calls, and asks for the GReLUs of activations."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        run = self.run
        if func not in FUNCTIONS or run.inside or current_run(run.conversion) is not run:
            return func(*args, **kwargs)
        where = _lines()
        if not where:
            return func(*args, **kwargs)
        asked = asked_of_function(func, args, kwargs)
        owner = f"{run.frames[-1].name}." if run.frames[-1].name else ""
        return run.activate(asked, owner + where, None, lambda: func(*args, **kwargs))


def _lines() -> str:
    """From the call of a function of torch up to the module's method, the line of each function,
    counted from its start; nothing where a module of torch is the caller."""
    frame = sys._getframe(2)
    lines: list[str] = []
    while frame is not None and frame.f_code is not Call.run_original.__code__:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("torch.nn.modules.") and not lines:
            return ""
        if not module.startswith("torch."):
            line = frame.f_lineno - frame.f_code.co_firstlineno
            lines.append(f"{frame.f_code.co_name}:{line}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(lines)
