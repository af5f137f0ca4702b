"""Forty models with random branches, checkpoints, in-place operations and batches."""

import random
import textwrap
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_geometric import nn as gnn

from graphrelu import GReLU, convert, replacements
from tests.helpers import batch_of_graphs, opened, random_graph

LAYERS = 3
ACTIVATIONS = ["F.relu(x)", "x.relu()", "torch.relu(x)", "self.act(x)", "F.leaky_relu(x, 0.2)"]
IN_PLACE = {"x.relu_()": "x.relu()", "F.relu(x, inplace=True)": "F.relu(x)"}
IN_PLACE["self.in_place(x)"] = "self.act(x)"


class Base(torch.nn.Module):
    """The parts that a generated forward is written with."""

    def __init__(self) -> None:
        super().__init__()
        kinds = gnn.GCNConv, gnn.SAGEConv, gnn.GATConv
        self.convs = torch.nn.ModuleList(conv(6, 6) for conv in kinds)
        self.lins = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(LAYERS))
        self.act, self.in_place = torch.nn.ReLU(), torch.nn.ReLU(inplace=True)
        self.norm = torch.nn.LayerNorm(6)

    def block(self, x: Tensor, edge_index: Tensor, i: int) -> Tensor:
        x = F.relu(self.convs[i](x, edge_index))
        return self.act(self.lins[i](x))


def source(seed: int) -> str:
    """Of a forward of a few random layers."""
    draw = random.Random(seed)
    lines = ["h = x"]
    for i in range(LAYERS):
        layer = f"x = self.convs[{i}](x, edge_index)"
        activation = draw.choice([*ACTIVATIONS, *IN_PLACE])
        kind = draw.choice(["plain", "plain", "linear", "branch", "mode", "checkpoint"])
        if kind == "checkpoint":
            reentrant = draw.choice([True, False])
            lines += [f"x = checkpoint(self.block, x, edge_index, {i}, use_reentrant={reentrant})"]
        elif kind == "branch":  # the example may have no such graph
            lines += [layer, "if x.size(0) > 20:", f"    x = {activation}"]
        elif kind == "mode":
            lines += [layer, f"x = {activation}", "if self.training:"]
            lines += [f"    x = F.dropout(F.relu(self.lins[{i}](x)), 0.3)"]
        else:
            lines += [layer, f"x = {activation}"]
        if kind == "linear":
            lines += [f"x = self.lins[{i}](x)", f"x = {draw.choice(ACTIVATIONS)}"]
        lines += draw.choice([[], ["x = self.norm(x)"], ["x = x + h", "h = x"], ["h = x"]])
    lines += draw.choice([[], ["x = gnn.global_mean_pool(x, batch)", "x = F.relu(x)"]])
    return "\n".join(lines)


def model_of(body: str) -> torch.nn.Module:
    """A model with this forward; those of one seed have the same parameters."""
    torch.manual_seed(0)
    names: dict[str, Any] = {"Base": Base, "F": F, "torch": torch, "gnn": gnn}
    names["checkpoint"] = checkpoint
    forward = "def forward(self, x, edge_index, batch=None):\n"
    forward += textwrap.indent(f"{body}\nreturn x", " " * 4)
    exec(f"class Generated(Base):\n{textwrap.indent(forward, ' ' * 4)}", names)
    model: torch.nn.Module = names["Generated"]()
    return model.double()


def without_checkpoints(body: str) -> str:
    """The same function, without checkpoints and writing nothing in place."""
    for written, plain in IN_PLACE.items():
        body = body.replace(written, plain)
    parts = body.split("checkpoint(self.block, ")
    rest = [part.replace(", use_reentrant=True", "", 1) for part in parts[1:]]
    rest = [part.replace(", use_reentrant=False", "", 1) for part in rest]
    return "self.block(".join([parts[0], *rest])


def run(model: torch.nn.Module, arguments: tuple[Tensor, ...]) -> list[Tensor]:
    """The output and the gradients; a parameter that is not used has none."""
    torch.manual_seed(1)
    x = arguments[0].clone().requires_grad_()
    out = model(x, *arguments[1:])
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    model.zero_grad()
    (out * weight).sum().backward()  # reentrant checkpoints know no torch.autograd.grad
    own = [x, *(p for name, p in model.named_parameters() if "grelus" not in name)]
    return [out.detach(), *(torch.zeros(()) if p.grad is None else p.grad for p in own)]


def graphs() -> list[tuple[Tensor, ...]]:
    """A graph, a larger one, and a batch."""
    torch.manual_seed(2)
    edge_index, batch = batch_of_graphs([7, 1, 9])
    found: list[tuple[Tensor, ...]] = [
        (torch.randn(n, 6, dtype=torch.double), random_graph(n, 3 * n, undirected=True))
        for n in (12, 30)
    ]
    return [*found, (torch.randn(17, 6, dtype=torch.double), edge_index, batch)]


def grelus(model: torch.nn.Module) -> list[GReLU]:
    return [module for module in model.modules() if isinstance(module, GReLU)]


@pytest.mark.parametrize("seed", range(40))
def test_nothing_differs_silently(seed: int) -> None:
    body = source(seed)
    model, plain = model_of(body), model_of(without_checkpoints(body))
    example = graphs()
    with warnings.catch_warnings():
        # Of a branch that the example does not take, the activation stays.
        warnings.filterwarnings("ignore", "The activation at .* was not reached")
        warnings.filterwarnings("ignore", "None of the inputs have requires_grad")
        converted, other = (convert(one, example=example) for one in (model, plain))
        assert replacements(converted).changed
        for training in (True, False):
            for one in (model, plain, converted, other):
                one.train(training)
            for arguments in example:
                expected = run(model, arguments)
                assert all(map(torch.equal, run(converted, arguments), expected)), body
        # Checkpoints and in-place operations are no different once the GReLUs have left ReLU.
        for own, same in zip(grelus(converted), grelus(other), strict=True):
            same.load_state_dict(opened(own).state_dict())
        for arguments in example:
            found, expected = run(converted, arguments), run(other, arguments)
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
