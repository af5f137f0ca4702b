"""GReLU in an existing model, trained or not.

A converted model runs its own code. :func:`convert` runs a copy of it on an example and gives each
:class:`Place` where it calls an activation a GReLU. A :class:`Method` is put in front of each
method of its modules. When the model is called, the outermost method opens a :class:`Run`, and all
of them tell it which layer and which graph came last. An activation asks the run for the GReLU of
its place: a module through its method, a function such as `F.relu` through an
:class:`Interceptor`. If there is none, the activation stays.
"""

import contextlib
import copy
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from traceback import walk_stack
from types import FunctionType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Module
from torch.overrides import TorchFunctionMode, handle_torch_function
from torch_geometric import nn as gnn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor, to_undirected

from graphrelu.context import Graph, Scope, prepare_checkpoints, scopes
from graphrelu.grelu import GReLU
from graphrelu.ops import has_values

__all__ = ["Replacement", "Replacements", "convert", "replacements"]

EXACT = ("relu", "leaky_relu")  # a fresh GReLU equals them
OTHERS = "PReLU ELU CELU SELU GELU SiLU Mish Softplus Hardswish ReLU6 Tanh"
MODULES: dict[type[Module], str] = {
    nn.ReLU: "relu",
    nn.LeakyReLU: "leaky_relu",
    **{getattr(nn, name): name.lower() for name in OTHERS.split()},
}
# F.relu, torch.relu, Tensor.relu, and the same with an underscore, which write into their input.
FUNCTIONS = {
    getattr(home, name + end)
    for name in MODULES.values()
    for end in ("", "_")
    for home in (F, torch, Tensor)
    if hasattr(home, name + end)
}
_POOLINGS = (gnn.TopKPooling, gnn.SAGPooling, gnn.ASAPooling, gnn.PANPooling)
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_HETEROGENEOUS = (gnn.HeteroConv, gnn.HGTConv, gnn.HANConv)
# The classes of these packages have no methods that are the model's own.
_FRAMEWORKS = ("torch", "pytorch_lightning", "lightning")
_WRAPPERS = ("torch._dynamo", "torch.nn.parallel", "torch.distributed", "torch.jit")
_LAYERS = ("layer", "convolution")  # kinds of methods
_TRACERS = ("torch.fx._symbolic_trace", "torch_geometric.nn.fx")
_EDGES = ("edge_index", "adj_t", "adj")


class Replacement(NamedTuple):
    """One place of a converted model where an activation is called."""

    name: str
    before: str
    after: str  # empty where the activation stays
    reason: str = ""  # why it stays

    def __str__(self) -> str:
        what = f"-> {self.after}" if self.after else f"stays: {self.reason}"
        return f"{self.name}: {self.before} {what}"


class Replacements(list[Replacement]):
    """All of them; printed one per line."""

    @property
    def changed(self) -> list[Replacement]:
        return [replacement for replacement in self if replacement.after]

    @property
    def left(self) -> list[Replacement]:
        return [replacement for replacement in self if not replacement.after]

    def __str__(self) -> str:
        return "\n".join(map(str, self))


def convert(
    model: torch.nn.Module,
    *,
    example: Any = None,
    inplace: bool = False,
    activations: Sequence[str] = EXACT,
    exclude: Sequence[str] = (),
    graph: str | None = None,
    **grelu_options: Any,
) -> torch.nn.Module:
    r"""Replaces every ReLU and LeakyReLU between the layers of a model with its
    own :class:`~graphrelu.GReLU`.

    The converted model is called exactly as before; its output is the same bit for bit until it is
    trained further. Modules such as :class:`torch.nn.ReLU` and functions such as :func:`torch.relu`
    are replaced alike. Each GReLU takes the graph from the convolution before it, else from the
    model's own arguments. :func:`replacements` lists what was changed.

    Args:
        model (torch.nn.Module): The model.
        example (Data or tuple or dict or callable or list, optional): Arguments to run a copy of
            the model with once, or a function that runs it, to see where it calls activations; or
            a list of these. Needed if a small made-up graph is not enough. (default: :obj:`None`)
        inplace (bool, optional): Converts the model itself, not a copy. (default: :obj:`False`)
        activations (list of str, optional): The names of the activations to replace. No GReLU
            starts as :obj:`"elu"`, :obj:`"gelu"`, :obj:`"silu"` or another smooth function: their
            GReLUs start as ReLU, and the output changes. (default: :obj:`("relu", "leaky_relu")`)
        exclude (list of str, optional): What stays: names of modules, with all that they call, or
            of places as :func:`replacements` names them. (default: :obj:`()`)
        graph (str, optional): The name of the model's argument that is the graph, if it is not
            :obj:`edge_index`, :obj:`adj_t` or :obj:`adj`; for activations before the first
            convolution, and models without one. (default: :obj:`None`)
        **grelu_options (optional): Further arguments of :class:`~graphrelu.GReLU`.

    Examples:
        >>> from torch_geometric.nn import GCN
        >>> model = GCN(16, 32, num_layers=2, out_channels=7)
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 0, 3]])
        >>> converted = convert(model)
        >>> torch.equal(converted(x, edge_index), model(x, edge_index))
        True
    """
    _check_arguments(model, activations, grelu_options)
    plan = Plan(tuple(activations), graph)
    findings = _run_on_examples(model, plan, example)
    modules = dict(model.named_modules(remove_duplicate=False))
    for name in exclude:
        if not name or name not in {*modules, *map(str, findings)}:
            raise ValueError(
                f"exclude must name modules of the model or places of activations, got {name!r}."
            )
    report = Replacements(
        _replacement(place, finding, modules, plan, exclude) for place, finding in findings.items()
    )
    report += _never_called(model, {modules.get(place.where) for place in findings})
    if not report.changed and not any(isinstance(module, GReLU) for module in model.modules()):
        raise ValueError(
            f"model must have an activation that a GReLU can replace, got "
            f"{type(model).__name__}: {'; '.join(map(str, report)) or 'it calls none'}."
        )
    converted = model if inplace else copy.deepcopy(model)
    _put_methods(converted, plan)
    plan.intercepts = False
    for (place, finding), replacement in zip(findings.items(), report, strict=False):
        plan.places[place] = None
        if replacement.after:
            owner: Any = converted.get_submodule(place.owner)
            if not hasattr(owner, "grelus"):
                owner.grelus = nn.ModuleList()
                owner.named_children = partial(own_children, owner)
            plan.places[place] = len(owner.grelus)
            plan.intercepts |= place.where not in modules
            grelu = GReLU(place.width, negative_slope=place.slope, **grelu_options)
            owner.grelus.append(grelu.to(finding).train(owner.training))
    vars(converted)["_replacements"] = report
    return converted


def replacements(model: Module) -> Replacements:
    r"""What :func:`convert` changed in a model and what it left, with the reason; to be printed.

    Args:
        model (torch.nn.Module): A converted model, or one that contains converted models.
    """
    modules = [(n, m) for n, m in model.named_modules() if "_replacements" in vars(m)]
    if not modules:
        raise ValueError("model must be a converted one: call graphrelu.convert on it first.")
    return Replacements(
        replacement._replace(name=f"{name}.{replacement.name}" if name else replacement.name)
        for name, module in modules
        for replacement in vars(module)["_replacements"]
    )


def _check_arguments(model: Any, activations: Any, grelu_options: dict[str, Any]) -> None:
    if not isinstance(model, Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    for name in activations:
        if name not in MODULES.values():
            raise ValueError(
                f"activations must be among {', '.join(MODULES.values())}, got {name!r}."
            )
    for module in model.modules():
        home, kind = type(module).__module__, type(module).__name__
        if home.startswith(_WRAPPERS):
            raise ValueError(
                f"model must not be compiled or wrapped yet, got a {kind} in it: convert it first."
            )
        if isinstance(module, (*_HETEROGENEOUS, torch.fx.GraphModule)):
            raise ValueError(
                f"model must be for one type of nodes and not traced, got a {kind} in it: for "
                "several types, use graphrelu.HeteroGReLU."
            )
        if "_replacements" in vars(module) or hasattr(module, "grelus"):
            raise ValueError(
                f"model must not have GReLUs from convert, nor an attribute grelus, got a {kind} "
                "with them: convert the whole model at once."
            )
    fresh = GReLU(1, negative_slope=0.0, **grelu_options)
    if fresh.mode == "paper" or fresh.K == 1:
        raise ValueError(
            "mode must not be 'paper', and K not 1, as a fresh GReLU is then not ReLU: build the "
            "model with such a GReLU instead."
        )


# The run on the example: which activations a model calls, and why some of them stay.


class Place(NamedTuple):
    """Where an activation is called, in words that the next call of the model can repeat."""

    owner: str  # the module whose code calls it
    activation: str
    slope: float
    where: str  # the name of the activation, or the line of the call
    after: str  # the layer called before
    number: int  # of the call since then
    width: int

    def __str__(self) -> str:
        after = f" after {self.after}" if self.after else ""
        return self.where + after + (f", call {self.number + 1}" if self.number else "")


# An empty tensor of the type and on the device of what a GReLU there sees, or why none fits.
Finding = Tensor | str


@dataclass
class Plan:
    """What all methods of a converted model share."""

    activations: tuple[str, ...]  # the names of those that are replaced
    graph: str | None  # the name of the model's argument
    # Functions are intercepted while the example runs, and where one was replaced.
    intercepts: bool = True
    findings: dict[Place, Finding] | None = None  # while the example runs
    places: dict[Place, int | None] = field(default_factory=dict)  # which of the owner's GReLUs


def _run_on_examples(model: Module, plan: Plan, example: Any) -> dict[Place, Finding]:
    """Runs a copy of the model on the examples, in its own mode and then in the other one."""
    model = copy.deepcopy(model)
    _put_methods(model, plan)
    one = _made_up_example(model) if example is None else example
    examples = one if isinstance(one, list) else [one]
    findings: dict[Place, Finding] = {}
    plan.findings = findings
    with torch.random.fork_rng({p.get_device() for p in model.parameters() if p.is_cuda}):
        try:
            for one in examples:
                _call_on(model, one)
        except Exception as error:
            if example is not None:
                raise
            raise ValueError(
                "example must be given, such as example=data or example=(x, edge_index), to see "
                f"where {type(model).__name__} calls activations: on a small graph it raises "
                f"{error!r}."
            ) from error
        model.train(not model.training)
        for one in examples:
            with contextlib.suppress(Exception):  # one graph may be too few to train with
                _call_on(model, one)
    plan.findings = None
    return findings


def _call_on(model: Module, example: Any) -> None:
    """A model may write into its arguments, so it gets copies."""
    if isinstance(example, Data):
        call_with(model, example.clone())
    elif isinstance(example, tuple):
        model(*copy.deepcopy(example))
    elif isinstance(example, dict):
        model(**copy.deepcopy(example))
    elif callable(example) and not isinstance(example, Module):
        example(model)
    else:
        raise TypeError(
            "example must be a Data object, a tuple or dict of the model's arguments, a function "
            f"that calls the model, or a list of these, got {type(example).__name__}."
        )


def call_with(model: Module, data: Data) -> Any:
    """Calls a model with the attributes of a graph that its arguments name, or with the graph."""
    names = parameter_names(model)
    if {"x", "edge_index", "adj_t"} & set(names):
        return model(**{name: data[name] for name in names if name in data})
    return model(data)


def _made_up_example(model: Module) -> Data:
    """Three paths of 13 nodes together, without what the model has a default for."""
    first = torch.tensor([0, 1, 2, 3, 4, 6, 7, 8, 10, 11])
    edge_index = to_undirected(torch.stack([first, first + 1]))
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    widths = (
        getattr(m, size, None) for m in model.modules() for size in ("in_channels", "in_features")
    )
    width = max(1, next((width for width in widths if isinstance(width, int)), 1))
    data = Data(
        x=torch.linspace(-1, 1, 13 * width, dtype=like.dtype).view(13, width),
        edge_index=edge_index,
        edge_weight=torch.ones(edge_index.size(1), dtype=like.dtype),
        batch=torch.tensor([0] * 6 + [1] * 4 + [2] * 3),
    )
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if name in data and parameter.default is not inspect.Parameter.empty:
            del data[name]
    return data.to(like.device)


def _replacement(
    place: Place,
    finding: Finding,
    modules: dict[str, Module],
    plan: Plan,
    exclude: Sequence[str],
) -> Replacement:
    inside = [f"{place.owner}.", f"{place.where}."]
    if str(place) in exclude or any(i.startswith(f"{name}.") for name in exclude for i in inside):
        reason = "it is excluded"
    elif place.activation not in plan.activations:
        reason = f"activations does not name {place.activation!r}"
        reason += "" if place.activation in EXACT else ", which no GReLU starts as"
    elif isinstance(owner := modules[place.owner], _CONTAINERS):
        reason = f"its {type(owner).__name__} would take the GReLU for one of its layers"
    else:
        reason = finding if isinstance(finding, str) else ""
    module = modules.get(place.where)
    before = f"{place.activation}()" if module is None else repr(module)
    slope = f", negative_slope={place.slope:g}" if place.slope else ""
    return Replacement(str(place), before, "" if reason else f"GReLU({place.width}{slope})", reason)


def _never_called(model: Module, called: set[Module | None]) -> Iterator[Replacement]:
    """The activation modules that the example did not reach, with the reason."""
    layers = [(path, layer) for path, layer, kind in _parts(model) if kind in _LAYERS]
    for name, module in model.named_modules():
        if type(module) in MODULES and module not in called:
            reason = "the run on the example does not call it"
            for path, layer in layers:
                if name.startswith(f"{path}."):
                    reason = f"it is a part of {path}, a {type(layer).__name__}"
            yield Replacement(name, repr(module), "", reason)


# The graph among the arguments of a call.


def parameter_names(module: Module, method: str = "forward") -> list[str]:
    """The positional arguments of a method."""
    if isinstance(module, gnn.Sequential) and method == "forward":
        return list(module.signature.param_dict)
    parameters = inspect.signature(getattr(module, method)).parameters.values()
    return [p.name for p in parameters if p.kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]


def read_graph(
    arguments: Mapping[str, Any], named: str | None = None, guess: bool = False
) -> Graph:
    """The graph and the batch vector that a call was given; each may be None. The graph is the
    argument that is `named`, else one of the usual names, else, for a `guess`, the only one that
    looks like a graph."""
    batch_size = arguments.get("batch_size")
    data = next((value for value in arguments.values() if isinstance(value, Data)), None)
    if data is not None:
        arguments, batch_size = data.to_dict(), getattr(data, "num_graphs", None)
    batch = arguments.get("batch")
    if not isinstance(batch, Tensor) or batch.is_floating_point() or batch.dim() != 1:
        batch, batch_size = None, None
    weight = arguments.get("edge_weight")
    if isinstance(weight, Tensor):
        weight = weight.view(-1) if weight.dim() == 2 and weight.size(1) == 1 else weight
        weight = weight if weight.is_floating_point() else weight.float()
    graphs = {name: value for name, value in arguments.items() if _is_graph(value)}
    found = [name for name in (named, *_EDGES) if name in graphs][:1]
    if guess and not found:
        found = [name for name in graphs if "hyperedge" not in name and "label" not in name]
    edge_index = graphs[found[0]] if len(found) == 1 else None  # between two we would guess
    return Graph(edge_index, weight, batch, batch_size, _num_nodes(arguments, batch))


def _is_graph(value: Any) -> bool:
    if not isinstance(value, Tensor) or is_torch_sparse_tensor(value):
        return isinstance(value, (Tensor, SparseTensor))
    return not value.is_floating_point() and value.dim() == 2 and value.size(0) == 2


def _num_nodes(arguments: Mapping[str, Any], batch: Tensor | None) -> int | None:
    """None if it is not known, or if sources and targets are two sets of nodes."""
    x = arguments.get("x", next(iter(arguments.values()), None))
    if isinstance(x, (tuple, list)):
        x = x[0] if len(x) == 2 and x[0] is x[1] else None
    if isinstance(x, Tensor) and x.is_floating_point() and x.dim() == 2:
        return x.size(0)
    return None if batch is None else batch.size(0)


def own_children(module: Module) -> Iterator[tuple[str, Module]]:
    """In place of the method `named_children` of a module with GReLUs: code of the model that runs
    all children does not meet them, and torch's own, as `to` and `train`, does."""
    for frame, _ in walk_stack(sys._getframe()):
        if frame.f_globals.get("__name__") in _TRACERS:
            raise ValueError(
                "A converted model cannot be traced, as by torch.fx and to_hetero, which would "
                "lose its GReLUs: use torch.compile or, for several types of nodes, "
                "graphrelu.HeteroGReLU."
            )
    hides = current_run() is not None
    for name, child in type(module).named_children(module):
        if not (hides and name == "grelus"):
            yield name, child


# One call of a converted model.


@dataclass(eq=False)
class Run(Scope):
    """One call of a converted model, from its first method on."""

    plan: Plan
    # The methods whose code may call activations, from the outermost to the innermost.
    methods: list["Method"] = field(default_factory=list)
    # By module: the layer that returned last in its code, and the activations since then.
    since: dict[str, list[str]] = field(default_factory=dict)
    depth: int = 0  # in how many layers it is, in which activations stay
    graph: Graph | None = None  # the one seen last
    batches: list[tuple[Tensor, int | None]] = field(default_factory=list)  # and their sizes

    def __copy__(self) -> "Run":
        since = {path: list(names) for path, names in self.since.items()}
        return replace(self, methods=[*self.methods], since=since, batches=[*self.batches])

    def interceptor(self) -> contextlib.AbstractContextManager[Any]:
        is_needed = self.plan.intercepts and not self.depth
        return Interceptor(self) if is_needed else contextlib.nullcontext()

    def note_graph(self, graph: Graph) -> None:
        """A module was called with a graph, or with a batch vector. The graph that is known then is
        the one seen last, with the batch vector seen last that has its number of nodes."""
        if graph.batch is not None:
            self.batches.append((graph.batch, graph.batch_size))
        known = self.graph if graph.edge_index is None else graph
        if known is not None and self.batches:
            fitting = [pair for pair in self.batches if len(pair[0]) == known.num_nodes]
            batch, batch_size = fitting[-1] if fitting else (None, None)
            known = known._replace(batch=batch, batch_size=batch_size)
        self.graph = known

    def in_layer(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What a function returns; activations inside it stay."""
        self.depth += 1
        try:
            if self.plan.intercepts and self.depth == 1:
                # By the interceptor, which torch calls without itself: attention then takes a
                # faster path, which rounds differently.
                return handle_torch_function(Run.in_layer, (), self, function, *args, **kwargs)
            return function(*args, **kwargs)
        finally:
            self.depth -= 1

    def misfit(self, x: Any) -> str:
        """Why no GReLU fits here; empty if one does."""
        shape = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
        is_matrix = isinstance(x, Tensor) and x.dim() == 2 and x.layout == torch.strided
        if not is_matrix or not x.is_floating_point():
            return f"it sees {shape}, which is not a matrix of node features"
        if self.graph is None or self.graph.num_nodes is None:
            return "no graph with a number of nodes is known before it"
        if x.size(0) != self.graph.num_nodes:
            return f"it sees {shape} where the graph has {self.graph.num_nodes} nodes"
        if self.graph.batch is None and self.batches:
            return f"it sees {shape}, and no batch vector has {x.size(0)} entries"
        return ""

    def activate(
        self, activation: str, where: str, options: Mapping[str, Any], original: Callable[[], Any]
    ) -> Any:
        """The GReLU of this place, or else the original activation."""
        method, plan = self.methods[-1], self.plan
        x: Any = options.get("input")
        slope = float(options.get("negative_slope", 0.01)) if activation == "leaky_relu" else 0.0
        width = x.size(1) if isinstance(x, Tensor) and x.dim() == 2 else 0
        after, *since = self.since[method.path]
        self.since[method.path].append(where)
        place = Place(method.path, activation, slope, where, after, since.count(where), width)
        if plan.findings is not None:
            misfit = self.misfit(x)
            if misfit or place not in plan.findings:
                plan.findings[place] = misfit or x.detach().new_empty(0)
            return original()
        stays = place in plan.places or activation not in plan.activations
        if not stays and not torch.compiler.is_compiling() and not self.misfit(x):
            plan.places[place] = None  # and no second warning
            warnings.warn(
                f"The activation at {str(place)!r} was not reached by the example and stays "
                f"{activation}: convert the model with an example that takes the same path.",
                stacklevel=2,
            )
        index = plan.places.get(place)
        if index is None:
            return original()
        grelus: Any = method.module.grelus
        return self._apply(grelus[index], place, x, in_place=bool(options.get("inplace")))

    def _apply(self, grelu: GReLU, place: Place, x: Any, in_place: bool) -> Tensor:
        misfit = self.misfit(x)
        if misfit or self.graph is None:
            raise ValueError(
                f"x of the GReLU at {str(place)!r} must have a row for each node, but {misfit}: "
                "call the converted model on all nodes at once, or convert it with "
                f"exclude=[{str(place)!r}]."
            )
        given = x.clone() if in_place else x.view_as(x)
        if given.requires_grad and has_values(x):
            # A gradient with another memory layout than ReLU's would be rounded differently.
            given.register_hook(partial(_laid_out_like, torch.empty_like(x, device="meta")))
        out: Tensor = grelu(given, *self.graph[:4])
        if in_place:
            return x.copy_(out)
        return out if x.is_contiguous() else torch.empty_like(x).copy_(out)


def _laid_out_like(like: Tensor, grad: Tensor) -> Tensor:
    if grad.stride() == like.stride():
        return grad
    return torch.empty_like(like, device=grad.device).copy_(grad)


def current_run() -> Run | None:
    """The innermost."""
    return next((run for run in reversed(scopes.around) if isinstance(run, Run)), None)


class Interceptor(TorchFunctionMode):
    """Sees every torch function that a run calls, and asks for the GReLUs of activations."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is Run.in_layer:
            return args[1](*args[2:], **kwargs)
        run, line = self.run, ""
        if func in FUNCTIONS and current_run() is run:
            prepare_checkpoints()
            line = line_of_the_call()
        if not line:
            return func(*args, **kwargs)
        name, path = func.__name__.removesuffix("_"), run.methods[-1].path
        options = {
            "inplace": name != func.__name__ or any(arg is True for arg in args),
            **dict(zip(("input", "negative_slope"), args, strict=False)),
            **kwargs,
        }
        where = f"{path}.{line}" if path else line
        return run.activate(name, where, options, partial(func, *args, **kwargs))


def line_of_the_call() -> str:
    """The line of the model's code that calls a function of torch, counted from the start of the
    surrounding function; empty if a module of torch, or a checkpoint, calls it."""
    for frame, line in walk_stack(sys._getframe(2)):
        caller = str(frame.f_globals.get("__name__"))
        if caller.startswith(("torch.nn.modules.", "torch.utils.checkpoint", "graphrelu.context")):
            return ""
        if not caller.startswith("torch."):
            return f"{frame.f_code.co_name}:{line - frame.f_code.co_firstlineno}"
    return ""


class Method:
    """A method of a module of a converted model, in place of the method itself. By its kind:

    - model: its code may call activations;
    - layer: activations stay in it, and what follows comes after it;
    - convolution: a layer whose graph is that of what follows;
    - activation: it has one GReLU for each place where it is called.
    """

    def __init__(self, module: Module, name: str, path: str, kind: str, plan: Plan) -> None:
        self.module = module
        self.name = name
        self.path = path  # of the module
        self.kind = kind
        self.plan = plan
        self.names = parameter_names(module, name)
        self.own = vars(module).get(name)  # of the instance, else that of the class
        vars(module)[name] = self

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return self.own or partial(getattr(type(self.module), self.name), self.module)

    @property
    def __code__(self) -> Any:
        """For torch.export."""
        return getattr(type(self.module), self.name).__code__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.plan.intercepts and torch.compiler.is_compiling():
            return _uncompiled(self, args, kwargs)
        return _call(self, args, kwargs)

    def inside(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call in a run."""
        if self.kind == "activation" and run.depth == 0:
            name, original = MODULES[type(self.module)], partial(self.__wrapped__, *args, **kwargs)
            options = {**vars(self.module), **dict(zip(["input"], args, strict=False)), **kwargs}
            return run.in_layer(run.activate, name, self.path, options, original)
        if self.kind == "convolution":
            run.graph = None  # nothing is known of a graph that cannot be read
        if self.kind in ("model", "convolution"):
            guess = run.graph is None and self.name == "forward"
            arguments = {**dict(zip(self.names, args, strict=False)), **kwargs}
            run.note_graph(read_graph(arguments, self.plan.graph, guess))
        if self.kind == "model":
            if all(method.module is not self.module for method in run.methods):
                run.since[self.path] = [""]
            run.methods.append(self)
            try:
                out = self.__wrapped__(*args, **kwargs)
            finally:
                run.methods.pop()
        else:
            out = run.in_layer(self.__wrapped__, *args, **kwargs)
        if isinstance(self.module, _POOLINGS):
            # A single graph needs no batch vector, though the layer makes one.
            batch = out[3] if run.batches else None
            run.note_graph(Graph(out[1], batch=batch, num_nodes=out[0].size(0)))
        if self.name == "reset_parameters":
            for grelu in getattr(self.module, "grelus", ()):
                grelu.reset_parameters()
        if self.name != "forward" and not isinstance(self.module.forward, Method):
            # A Sequential of PyG has been copied and has written itself another forward.
            Method(self.module, "forward", self.path, self.kind, self.plan)
        for method in run.methods:  # what comes now comes after this layer
            if method.module is not self.module:
                run.since[method.path] = [self.path]
        return out


def _call(method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    prepare_checkpoints()
    run = current_run()
    if run is not None and run.plan is method.plan:  # another model's calls inside are their own
        return method.inside(run, args, kwargs)
    if method.kind == "activation":
        raise RuntimeError(
            f"The activation {method.path!r} has no graph: call the converted model, or one of its "
            "methods, and not its parts one by one."
        )
    if method.kind != "model":
        return method.__wrapped__(*args, **kwargs)
    run = Run(method.plan)
    scopes.around.append(run)
    try:
        with run.interceptor():
            return method.inside(run, args, kwargs)
    finally:
        scopes.around.pop()


_uncompiled = torch.compiler.disable(_call)


def _parts(model: Module) -> Iterator[tuple[str, Module, str]]:
    """The modules outside layers, with their names and the kinds of their methods."""
    layer = " "  # prefix of the names inside a layer; no name starts with a space
    found: set[Module] = set()
    # A module with two names counts under the one outside of layers.
    for path, module in model.named_modules(remove_duplicate=False):
        if not f"{path}.".startswith(layer) and module not in found:
            found.add(module)
            kind = _kind(module, path)
            if kind in _LAYERS:
                layer = f"{path}."
            yield path, module, kind


def _put_methods(model: Module, plan: Plan) -> None:
    for path, module, kind in _parts(model):
        for name in _own_methods(module) if kind == "model" else ["forward"] * bool(kind):
            Method(module, name, path, kind, plan)


def _kind(module: Module, path: str) -> str:
    if hasattr(type(module), "__deepcopy__"):
        return ""  # a class that copies itself, as Linear of PyG 2.6, would lose the method
    if type(module).forward is nn.Sequential.forward:
        return ""  # the modules in it are called by what calls it
    if type(module) in MODULES:
        return "activation"
    if isinstance(module, GReLU):
        return "layer"
    if isinstance(module, (MessagePassing, *_POOLINGS)) and path:
        return "convolution"
    if not type(module).__module__.startswith("torch."):
        return "model"
    is_layer = any(True for _ in module.parameters()) and not isinstance(module, _CONTAINERS)
    return "layer" if is_layer else ""


def _own_methods(module: Module) -> list[str]:
    """The methods that a model's own classes define, which may call activations."""
    own = [c for c in type(module).__mro__ if c.__module__.split(".")[0] not in _FRAMEWORKS]
    names = {name for c in own for name, value in vars(c).items() if type(value) is FunctionType}
    of_torch = {name for name in names if name.startswith("__") or hasattr(Module, name)}
    return ["forward", *sorted(names - of_torch)]
