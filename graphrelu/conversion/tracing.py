"""A model's `forward` as a graph of calls, and back into a `forward`."""

import ast
import copy
import inspect
import math
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch_geometric
from torch.fx.graph_module import _format_import_block
from torch.package.importer import sys_importer
from torch_geometric.nn import Aggregation
from torch_geometric.nn.pool import glob

_lock = threading.Lock()


class CannotTrace(Exception):
    """Says why, to be read after 'because'."""


class _Tracer(torch.fx.Tracer):
    """:func:`torch_geometric.nn.fx.symbolic_trace`, which has no option for this: PyG's functions
    for pooling and its utilities are single calls too, as they branch on their arguments."""

    def __init__(self) -> None:
        wrapped: Any = (math, glob, torch_geometric.utils)
        super().__init__(autowrap_modules=wrapped)
        self._autowrap_search.append(torch_geometric.nn)

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return not isinstance(m, torch.nn.Sequential)


@contextmanager
def _plain_aggregations() -> Iterator[None]:
    """Aggregations look at their arguments before they are called as modules, which a trace
    cannot follow."""
    call = Aggregation.__call__
    del Aggregation.__call__
    try:
        yield
    finally:
        Aggregation.__call__ = call


def copy_with_same_tensors(module: torch.nn.Module) -> torch.nn.Module:
    tensors = (*module.parameters(), *module.buffers())
    return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})


def trace(module: torch.nn.Module) -> torch.fx.Graph:
    """The calls of `module.forward`: those of its submodules and of functions."""
    module = copy_with_same_tensors(module)  # it may keep what it is called with
    try:
        with _lock, _plain_aggregations():
            return _Tracer().trace(module)
    except Exception as error:  # whatever a forward may do with a stand-in for a tensor
        raise CannotTrace(f"its forward cannot be traced ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def trace_for_rewriting(module: torch.nn.Module) -> torch.fx.Graph:
    """:func:`trace`, with `training` read anew in every call, and refusing what it would lose."""
    tested = _tested_parameters(module)
    if tested:
        raise CannotTrace(f"its forward asks what {tested[0]!r} is, which a trace would fix")
    training = module.training
    try:
        module.training = True
        graph = trace(module)
        module.training = False
        other = trace(module)
    finally:
        module.training = training
    if len(graph.nodes) != len(other.nodes):
        raise CannotTrace("its forward takes other steps in training")
    first = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(first):
        flag = graph.create_node("get_attr", "training")
    nodes = [node for node in graph.nodes if node is not flag]
    for node, twin in zip(nodes, other.nodes, strict=True):
        if (node.op, node.target) != (twin.op, twin.target):
            raise CannotTrace("its forward takes other steps in training")
        node.args = _merge(node.args, twin.args, flag)
        node.kwargs = _merge(node.kwargs, twin.kwargs, flag)
        node.type = None
    return graph


def _merge(a: Any, b: Any, flag: torch.fx.Node) -> Any:
    """An argument in training and the same in evaluation."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return {key: _merge(a[key], b[key], flag) for key in a}
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)) and len(a) == len(b):
        return type(a)(_merge(x, y, flag) for x, y in zip(a, b, strict=True))
    if a is True and b is False:
        return flag
    if str(a) != str(b):  # nodes have names
        raise CannotTrace(f"its forward uses {a} in training and {b} else")
    return a


def _tested_parameters(module: torch.nn.Module) -> list[str]:
    """The arguments of `forward` whose type, or being None, decides what happens."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(type(module).forward)))
    except (OSError, TypeError, SyntaxError):
        return []
    tests: list[ast.AST] = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Compare)
            and any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
        ) or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "hasattr", "callable")
        ):
            tests.append(node)
    names = {name.id for test in tests for name in ast.walk(test) if isinstance(name, ast.Name)}
    return [name for name in inspect.signature(module.forward).parameters if name in names]


def input_is_used_after(node: torch.fx.Node) -> bool:
    """Whether something later than the node reads its input."""
    later = list(node.graph.nodes)
    later = later[later.index(node) + 1 :]
    return any(user in later for argument in node.all_input_nodes for user in argument.users)


def source_of(graph: torch.fx.Graph) -> str:
    """Python source that defines `forward`, complete with its imports."""
    code = graph.python_code("self")
    definition = code.src[code.src.index("def forward") :]
    return f"{_format_import_block(code.globals, sys_importer)}\n{definition}"
