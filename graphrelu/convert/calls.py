"""What happens while a converted model runs.

The `forward` of its modules is theirs; a :class:`Call` stands before it, on the instance. The
outermost one opens a :class:`Run`, which knows the graph that the latest convolution saw, and in
which layer the model is. Activations ask the run for the GReLU of their place: modules through
their own :class:`Call`, functions through the :class:`Interceptor`.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import EdgePooling
from torch_geometric.nn import Sequential as GraphSequential

from graphrelu.checks import may_look
from graphrelu.context import Graph, graph_context, scopes
from graphrelu.convert.activations import FUNCTIONS, Asked, asked_of_function, asked_of_module
from graphrelu.convert.graphs import Args, Kwargs, parameter_names, read
from graphrelu.convert.report import Replacements
from graphrelu.grelu import GReLU
from graphrelu.ops.eager import is_transformed


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
    """One call of an activation in the run on the example."""

    owner: str
    place: Place
    problem: str
    like: Tensor | None
    before: str
    is_function: bool


class Conversion:
    """What all parts of a converted model share."""

    def __init__(self, activations: tuple[str, ...], graph: str | None) -> None:
        self.activations = activations  # the names of those that are replaced
        self.graph = graph  # the name of the model's argument
        self.calls_functions = False  # whether a GReLU stands for a function
        self.report = Replacements()
        self.sights: list[Sight] | None = None  # only in the run on the example
        self.warned: set[tuple[str, Place]] = set()


class GReLUs(torch.nn.ModuleList):
    """The GReLUs that a module calls, and where; a place without one keeps its activation."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[Place, int | None] = {}

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for grelu in self:
            grelu.reset_parameters()  # type: ignore[operator]


class Frame:
    """One call of a method of a module that may call activations."""

    def __init__(self, owner: torch.nn.Module, name: str) -> None:
        self.owner = owner
        self.name = name
        self.after = ""
        self.counts: dict[tuple[str, str], int] = {}


class Run:
    """One call of a converted model; a scope for GReLUs that are called with `x` alone."""

    def __init__(self, conversion: Conversion) -> None:
        self.conversion = conversion
        self.frames: list[Frame] = []
        self.inside = 0  # a convolution, where activations stay
        self.found: Graph | None = None
        self.batches: list[Graph] = []

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

    def leave(self, module: torch.nn.Module, name: str) -> None:
        """A layer has returned: what comes now comes after it."""
        for frame in self.frames:
            if frame.owner is not module:
                frame.after = name
                frame.counts = {}

    def problem(self, x: Any, graph: Graph | None) -> str:
        """Why no GReLU fits here; empty where one does."""
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() != 2:
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
        self, asked: Asked, where: str, module: torch.nn.Module | None, base: Callable[[], Any]
    ) -> Any:
        """The GReLU of this place, or else the activation itself, `base`."""
        frame, conversion, x = self.frames[-1], self.conversion, asked.x
        count = frame.counts.get((asked.name, where), 0)
        frame.counts[asked.name, where] = count + 1
        is_matrix = isinstance(x, Tensor) and x.dim() == 2
        width = x.size(1) if is_matrix else 0
        place = Place(asked.name, asked.slope, where, frame.after, count, width)
        if conversion.sights is not None:
            like = x.detach().new_empty(0) if is_matrix else None
            problem = self.problem(x, self.graph)
            before = f"{asked.name}()" if module is None else repr(module)
            sight = Sight(frame.name, place, problem, like, before, is_function=module is None)
            conversion.sights.append(sight)
            return base()
        if asked.name not in conversion.activations:
            return base()
        grelus = getattr(frame.owner, "grelus", None)
        if grelus is None or place not in grelus.places:
            self._warn(place, frame.name, x)
            return base()
        index = grelus.places[place]
        return base() if index is None else self._apply(grelus[index], place, asked)

    def _apply(self, grelu: GReLU, place: Place, asked: Asked) -> Tensor:
        x: Tensor = asked.x
        graph = self.graph
        problem = self.problem(x, graph)
        if problem or graph is None:
            raise ValueError(
                f"x of the GReLU at {str(place)!r} must have a row for each node, but {problem}: "
                "call the converted model on all nodes at once, or convert it with "
                f"exclude=[{str(place)!r}]."
            )
        # Zero times infinity is no zero: a fresh GReLU would differ from its activation.
        if may_look(x, grelu.validate) and not bool(x.isfinite().all()):
            raise ValueError(f"x of the GReLU at {str(place)!r} must be finite, got inf or nan.")
        self.inside += 1
        try:
            out = grelu(same_order(x.clone() if asked.in_place else x), *graph[:4])
        finally:
            self.inside -= 1
        if asked.in_place:
            return x.copy_(out)
        return out if x.is_contiguous() else torch.empty_like(x).copy_(out)

    def _warn(self, place: Place, owner: str, x: Any) -> None:
        if self.problem(x, self.graph) or (owner, place) in self.conversion.warned:
            return
        if torch.compiler.is_compiling():
            return
        self.conversion.warned.add((owner, place))
        warnings.warn(
            f"The activation at {str(place)!r} was not met in the run on the example and stays "
            f"{place.activation}: convert the model with an example that takes the same path.",
            stacklevel=2,
        )


def current_run(conversion: Conversion) -> Run | None:
    """The run of this model; another model's calls inside are their own."""
    for scope in reversed(scopes.stack):
        if not isinstance(scope, graph_context):
            return scope if isinstance(scope, Run) and scope.conversion is conversion else None
    return None


def same_order(x: Tensor) -> Tensor:
    """`x`, whose gradient will be laid out in memory as `x` is, and as ReLU's would be: a product
    with a matrix that is laid out otherwise rounds otherwise."""
    if is_transformed() or not (torch.is_grad_enabled() and x.requires_grad):
        return x
    out: Tensor = _SameOrder.apply(x)
    return out


class _SameOrder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.strides = torch.empty_like(x, device="meta").stride()
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        if grad.stride() == ctx.strides:
            return grad
        return grad.new_empty_strided(grad.shape, ctx.strides).copy_(grad)


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


class Convolution(Call):
    """Its graph is that of the activations after it."""

    def within(self, run: Run, args: Args, kwargs: Kwargs) -> Any:
        run.found = None  # of a graph that cannot be read nothing is known
        run.see(read(self.names, args, kwargs, None, guess=True))
        run.inside += 1
        try:
            out = self.run_original(args, kwargs)
        finally:
            run.inside -= 1
        run.leave(self.module, self.name)
        return out


class Pooling(Convolution):
    """It returns a smaller graph, which is that of what follows."""

    def within(self, run: Run, args: Args, kwargs: Kwargs) -> Any:
        out = super().within(run, args, kwargs)
        # A single graph needs no batch vector, though the layer makes one.
        batch = out[2 if isinstance(self.module, EdgePooling) else 3] if run.batches else None
        run.see(Graph(out[1], batch=batch, num_nodes=out[0].size(0)))
        return out


class Attention(Call):
    """It has a faster way that rounds otherwise and that no interceptor may be seen from."""

    def within(self, run: Run, args: Args, kwargs: Kwargs) -> Any:
        if torch.compiler.is_compiling():
            return super().within(run, args, kwargs)
        with torch._C.DisableTorchFunction():
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
