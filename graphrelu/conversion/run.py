"""One call of a converted model.

The model runs its own code. A :class:`Call` stands before the methods of its modules, on the
instance; the outermost one opens a :class:`Run`, which knows the layer called last and its graph.
An activation asks the run for the GReLU of its place: a module through its own call, a function
through the :class:`Interceptor`. A place without a GReLU keeps its activation.
"""

import inspect
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode_temporarily
from torch_geometric.nn import EdgePooling, MessagePassing
from torch_geometric.nn import Sequential as GraphSequential
from torch_geometric.nn.pool import ASAPooling, PANPooling, SAGPooling, TopKPooling

from graphrelu.context import Graph, graph_context, scopes
from graphrelu.conversion.graphs import Args, Kwargs, parameter_names, read
from graphrelu.functional import has_values, values_on_cpu
from graphrelu.grelu import GReLU

MODULES: dict[type[torch.nn.Module], str] = {
    torch.nn.ReLU: "relu",
    torch.nn.LeakyReLU: "leaky_relu",
    torch.nn.PReLU: "prelu",
    torch.nn.ELU: "elu",
    torch.nn.CELU: "celu",
    torch.nn.SELU: "selu",
    torch.nn.GELU: "gelu",
    torch.nn.SiLU: "silu",
    torch.nn.Mish: "mish",
    torch.nn.Softplus: "softplus",
    torch.nn.Hardswish: "hardswish",
    torch.nn.ReLU6: "relu6",
    torch.nn.Tanh: "tanh",
}
# F.relu, torch.relu, Tensor.relu, and the same with an underscore, which write into their input.
FUNCTIONS: dict[Callable[..., Any], str] = {
    getattr(home, name + end): name + end
    for name in MODULES.values()
    for end in ("", "_")
    for home in (F, torch, Tensor)
    if hasattr(home, name + end)
}
_POOLINGS = (TopKPooling, SAGPooling, ASAPooling, PANPooling, EdgePooling)
_ATTENTION = (
    torch.nn.MultiheadAttention,
    torch.nn.TransformerEncoder,
    torch.nn.TransformerEncoderLayer,
)
# The classes of these packages have no methods that are the model's own.
_FRAMEWORKS = ("torch", "pytorch_lightning", "lightning", "builtins")


class Place(NamedTuple):
    """Where an activation is called, in the words that the next call can repeat."""

    activation: str
    slope: float
    where: str  # the module's name, or the lines of the functions that lead to the call
    after: str  # the layer called before
    number: int  # of the call since then
    width: int

    def __str__(self) -> str:
        after = f" after {self.after}" if self.after else ""
        return self.where + after + (f", call {self.number + 1}" if self.number else "")


class Sight(NamedTuple):
    """A place that the run on the example came to."""

    problem: str  # why no GReLU fits there
    like: Tensor
    module: torch.nn.Module | None  # None for a function


class Conversion:
    """What all parts of a converted model share; places go by the name of their module."""

    def __init__(self, activations: tuple[str, ...], graph: str | None) -> None:
        self.activations = activations  # the names of those that are replaced
        self.graph = graph  # the name of the model's argument
        self.calls_functions = False  # whether a GReLU stands for a function
        self.sights: dict[tuple[str, Place], Sight] | None = None  # in the run on the example
        self.places: dict[tuple[str, Place], int | None] = {}  # which of the module's GReLUs


class GReLUs(torch.nn.ModuleList):
    """The GReLUs that a module calls."""

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for grelu in self:
            grelu.reset_parameters()  # type: ignore[operator]


class Children(dict[str, Any]):
    """The modules of a module, less its GReLUs in a `forward` of the model: one that goes through
    its own layers or parameters finds those that it was written with."""

    def _shown(self) -> dict[str, Any]:
        runs = [scope for scope in scopes.stack if isinstance(scope, Run)]
        hides = any(frame.call.method == "forward" for run in runs for frame in run.frames)
        return {n: module for n, module in super().items() if not (hides and n == "grelus")}

    def __iter__(self) -> Any:
        return iter(self._shown())

    def __len__(self) -> int:
        return len(self._shown())

    def keys(self) -> Any:
        return self._shown().keys()

    def values(self) -> Any:
        return self._shown().values()

    def items(self) -> Any:
        return self._shown().items()


class Frame:
    """One call of a method of a module that may call activations."""

    def __init__(self, call: "Call") -> None:
        self.call = call
        self.after = ""
        self.counts: dict[tuple[str, str], int] = {}


class Run:
    """One call of a converted model; a scope for GReLUs that are called with `x` alone."""

    def __init__(self, conversion: Conversion) -> None:
        self.conversion = conversion
        self.frames: list[Frame] = []
        self.inside = 0  # of modules in which activations stay
        self.found: Graph | None = None
        self.batches: list[Graph] = []
        self.error: Exception | None = None  # of a GReLU, which the model may have caught

    @property
    def graph(self) -> Graph | None:
        """The graph seen last, with the batch vector seen last that has its number of nodes."""
        if self.found is None:
            return None
        for _, _, batch, batch_size, _ in reversed(self.batches):
            if batch is not None and batch.size(0) == self.found.num_nodes:
                return self.found._replace(batch=batch, batch_size=batch_size)
        return self.found._replace(batch=None, batch_size=None)

    def see(self, graph: Graph) -> None:
        """A module was called with a graph, or with a batch vector."""
        if graph.edge_index is not None:
            self.found = graph
        if graph.batch is not None:
            self.batches.append(graph)

    def leave(self, call: "Call") -> None:
        """A layer has returned: what comes now comes after it."""
        for frame in self.frames:
            if frame.call.module is not call.module:
                frame.after, frame.counts = call.name, {}

    def closed(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What a function returns in which activations stay. Nothing intercepts its calls: then
        attention takes a faster way, which rounds otherwise."""
        compiles = torch.compiler.is_compiling()
        is_seen = not compiles and isinstance(_get_current_function_mode(), Interceptor)
        self.inside += 1
        try:
            with _pop_mode_temporarily() if is_seen else nullcontext():
                return function(*args, **kwargs)
        finally:
            self.inside -= 1

    def problem(self, x: Any, graph: Graph | None) -> str:
        """Why no GReLU fits here; empty where one does."""
        is_matrix = isinstance(x, Tensor) and x.dim() == 2 and x.layout == torch.strided
        if not is_matrix or not x.is_floating_point():
            shape = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            return f"it sees {shape}, which is no matrix of node features"
        if graph is None:
            return "no graph is known before it"
        if graph.num_nodes is None:
            return "the convolution before it tells no number of nodes, or two of them"
        if x.size(0) != graph.num_nodes:
            return f"it sees {list(x.shape)} where the graph has {graph.num_nodes} nodes"
        if graph.batch is None and self.batches:
            return f"it sees {list(x.shape)} where no batch vector has so many entries"
        return ""

    def activate(
        self,
        name: str,
        options: dict[str, Any],
        where: str,
        module: torch.nn.Module | None,
        base: Callable[[], Any],
    ) -> Any:
        """The GReLU of this place, or else the activation itself, `base`."""
        frame, conversion, x = self.frames[-1], self.conversion, options.get("input")
        slope = float(options.get("negative_slope", 0.01)) if name == "leaky_relu" else 0.0
        count = frame.counts.get((name, where), 0)
        frame.counts[name, where] = count + 1
        width = x.size(1) if isinstance(x, Tensor) and x.dim() == 2 else 0
        place = Place(name, slope, where, frame.after, count, width)
        key = (frame.call.name, place)
        if conversion.sights is not None:
            like = x.detach().new_empty(0) if isinstance(x, Tensor) else torch.empty(0)
            sight = Sight(self.problem(x, self.graph), like, module)
            if sight.problem or key not in conversion.sights:
                conversion.sights[key] = sight
            return base()
        if name in conversion.activations and key not in conversion.places:
            self._warn(key, x)
        index = conversion.places.get(key)
        if index is None:
            return base()
        try:
            grelus: Any = frame.call.module.grelus
            return self._apply(grelus[index], place, x, in_place=bool(options.get("inplace")))
        except Exception as error:
            self.error = self.error or error
            raise

    def _apply(self, grelu: GReLU, place: Place, x: Any, in_place: bool) -> Tensor:
        graph = self.graph
        problem = self.problem(x, graph)
        if problem or graph is None:
            raise ValueError(
                f"x of the GReLU at {str(place)!r} must have a row for each node, but {problem}: "
                "call the converted model on all nodes at once, or convert it with "
                f"exclude=[{str(place)!r}]."
            )
        given = x.clone() if in_place else x
        if torch.is_grad_enabled() and x.requires_grad and has_values(x):
            # A gradient that is laid out otherwise than a ReLU's would be rounded otherwise.
            given = given.view_as(given)
            given.register_hook(partial(_laid_out, torch.empty_like(x, device="meta").stride()))
        out: Tensor = self.closed(grelu, given, *graph[:4])
        # Zero times infinity is no zero: a fresh GReLU would differ from its activation.
        if values_on_cpu(x) and not bool(x.isfinite().all() & out.isfinite().all()):
            raise ValueError(
                f"x of the GReLU at {str(place)!r} must be finite, got inf or nan, or numbers "
                "whose sums are."
            )
        if in_place:
            return x.copy_(out)
        return out if x.is_contiguous() else torch.empty_like(x).copy_(out)

    def _warn(self, key: tuple[str, Place], x: Any) -> None:
        if torch.compiler.is_compiling() or self.problem(x, self.graph):
            return
        self.conversion.places[key] = None  # and no second warning
        warnings.warn(
            f"The activation at {str(key[1])!r} was not met in the run on the example and stays "
            f"{key[1].activation}: convert the model with an example that takes the same path.",
            stacklevel=2,
        )


def _laid_out(stride: tuple[int, ...], grad: Tensor) -> Tensor:
    if grad.stride() == stride:
        return grad
    return grad.new_empty_strided(grad.shape, stride).copy_(grad)


class Call:
    """A method of a module of a converted model. By its kind:

    - model: its code may call activations;
    - layer: what follows comes after it;
    - convolution: a layer in which activations stay; its graph is that of what follows;
    - closed: a layer in which activations stay;
    - activation: it has one GReLU for each place where it is called.
    """

    def __init__(
        self, module: torch.nn.Module, method: str, name: str, kind: str, conversion: Conversion
    ) -> None:
        self.module = module
        self.method = method
        self.name = name
        self.kind = kind
        self.conversion = conversion
        self.names = parameter_names(module, method)
        self.original = vars(module).get(method)  # of the instance, else that of the class
        vars(module)[method] = self

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return self.original or getattr(type(self.module), self.method).__get__(self.module)

    def __getstate__(self) -> dict[str, Any]:
        written = isinstance(self.module, GraphSequential)
        return {**vars(self), "original": None if written else self.original}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.conversion.calls_functions:
            return _uncompiled(self, args, kwargs)
        return _call(self, args, kwargs)

    def run_original(self, *args: Any, **kwargs: Any) -> Any:
        if self.original is not None:
            return self.original(*args, **kwargs)
        return getattr(type(self.module), self.method)(self.module, *args, **kwargs)

    def within(self, run: Run, args: Args, kwargs: Kwargs) -> Any:
        """The call in a run."""
        if self.kind == "activation":
            return self._activate(run, args, kwargs)
        if self.kind == "convolution":
            run.found = None  # of a graph that cannot be read nothing is known
        if self.kind in ("model", "convolution"):
            guess = run.found is None and self.method == "forward"
            run.see(read(self.names, args, kwargs, self.conversion.graph, guess))
        if self.kind == "model":
            run.frames.append(Frame(self))
            try:
                out = self.run_original(*args, **kwargs)
            finally:
                run.frames.pop()
        elif self.kind == "layer":
            out = self.run_original(*args, **kwargs)
        else:
            out = run.closed(self.run_original, *args, **kwargs)
        if isinstance(self.module, _POOLINGS):
            # A single graph needs no batch vector, though the layer makes one.
            batch = out[2 if isinstance(self.module, EdgePooling) else 3] if run.batches else None
            run.see(Graph(out[1], batch=batch, num_nodes=out[0].size(0)))
        if self.method == "reset_parameters" and hasattr(self.module, "grelus"):
            self.module.grelus.reset_parameters()  # type: ignore[union-attr, operator]
        run.leave(self)
        return out

    def _activate(self, run: Run, args: Args, kwargs: Kwargs) -> Any:
        base = partial(self.run_original, *args, **kwargs)
        if run.inside or not run.frames:
            return base()
        options = {**vars(self.module), **dict(zip(["input"], args, strict=False)), **kwargs}
        return run.activate(MODULES[type(self.module)], options, self.name, self.module, base)


class Template(Call):
    """PyG's Sequential writes a new `forward` for each copy of itself; its call is put back."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        vars(self.module).pop("forward", None)
        self.run_original(*args, **kwargs)
        Call(self.module, "forward", self.name, "model", self.conversion)


def _call(call: Call, args: Args, kwargs: Kwargs) -> Any:
    run = current_run(call.conversion)
    if run is not None:
        return call.within(run, args, kwargs)
    if call.kind == "activation":
        raise RuntimeError(
            f"The activation {call.name!r} has no graph: call the converted model, or one of its "
            "methods, and not its parts one by one."
        )
    if call.kind != "model":
        return call.run_original(*args, **kwargs)
    run = Run(call.conversion)
    scopes.stack.append(run)
    # What is compiled has GReLUs for modules only.
    compiles = torch.compiler.is_compiling()
    interceptor: AbstractContextManager[Any] = nullcontext() if compiles else Interceptor(run)
    try:
        with interceptor:
            out = call.within(run, args, kwargs)
    finally:
        scopes.stack.pop()
    if run.error is not None:
        raise run.error
    return out


_uncompiled = torch.compiler.disable(_call)


def current_run(conversion: Conversion) -> Run | None:
    """The run of this model; another model's calls inside are their own."""
    for scope in reversed(scopes.stack):
        if not isinstance(scope, graph_context):
            return scope if isinstance(scope, Run) and scope.conversion is conversion else None
    return None


class Interceptor(TorchFunctionMode):
    """Sees every function of torch that a run calls, and asks for the GReLUs of activations."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        base, run = partial(func, *args, **(kwargs or {})), self.run
        if func not in FUNCTIONS or run.inside or current_run(run.conversion) is not run:
            return base()
        where = _lines()
        if not where:
            return base()
        name = FUNCTIONS[func].removesuffix("_")
        is_python = isinstance(func, FunctionType)
        names = inspect.signature(func).parameters if is_python else ("input", "negative_slope")
        options = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
        options["inplace"] = FUNCTIONS[func] != name or options.get("inplace")
        owner = run.frames[-1].call.name
        return run.activate(name, options, f"{owner}.{where}" if owner else where, None, base)


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


def install(model: torch.nn.Module, conversion: Conversion) -> None:
    """Puts a call before the methods of all modules that matter."""
    closed = " "  # the module that all of what follows is inside of; no name starts so
    found: set[torch.nn.Module] = set()
    # A module with two names counts where it is outside of what is closed.
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if f"{name}.".startswith(closed) or module in found:
            continue
        found.add(module)
        kind = _kind(module, name)
        if kind in ("closed", "convolution"):
            closed = f"{name}."
        if kind == "model":
            for method in _own_methods(module):
                Call(module, method, name, kind, conversion)
            if isinstance(module, GraphSequential):
                Template(module, "_set_jittable_template", name, "", conversion)
        elif kind and not isinstance(module, torch.jit.ScriptModule):
            Call(module, "forward", name, kind, conversion)


def _kind(module: torch.nn.Module, name: str) -> str:
    if isinstance(module, (GReLU, torch.jit.ScriptModule, *_ATTENTION)):
        return "closed"
    if hasattr(type(module), "__deepcopy__"):
        return ""  # a class that copies itself would lose the call
    if type(module) in MODULES:
        return "activation"
    if isinstance(module, (MessagePassing, *_POOLINGS)) and name:
        return "convolution"
    if not type(module).__module__.startswith("torch."):
        return "model"
    return "layer" if next(module.parameters(recurse=False), None) is not None else ""


def _own_methods(module: torch.nn.Module) -> list[str]:
    """The methods that a model's own classes define, which may call activations."""
    names = {"forward"}
    for cls in type(module).__mro__:
        if cls.__module__.split(".")[0] not in _FRAMEWORKS:
            names |= {name for name, value in vars(cls).items() if isinstance(value, FunctionType)}
    return sorted(
        name
        for name in names
        if name == "forward" or not (name.startswith("__") or hasattr(torch.nn.Module, name))
    )
