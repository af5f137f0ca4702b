"""One call of a converted model: where it is, which graph it saw last, and the GReLU of a place."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphrelu.checks import may_look
from graphrelu.context import Graph, graph_context, scopes
from graphrelu.conversion.activations import Asked
from graphrelu.conversion.report import Replacements
from graphrelu.grelu import GReLU
from graphrelu.ops.dispatch import can_be_read


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
    if not can_be_read(x) or not (torch.is_grad_enabled() and x.requires_grad):
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
