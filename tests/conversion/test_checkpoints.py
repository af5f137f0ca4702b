"""Checkpointed parts compute again what they computed, and not something else."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, ReLU, Sequential
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import GCN

from graphrelu import GReLU, convert, graph_context
from tests.conversion.models import BATCH, BATCHED, EDGES, Base, X
from tests.conversion.test_table import grelus
from tests.helpers import assert_close, opened


def directly(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
WAYS = [partial(checkpoint, use_reentrant=reentrant) for reentrant in (True, False)]


class Block(Base):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return F.relu(self.conv2(x, edge_index)) + x


class Checkpointed(Base):
    """Methods, modules of its own, modules of torch, activations and other functions."""

    def __init__(self, way: Any) -> None:
        super().__init__()
        self.way = way
        self.block, self.act = Block(), ReLU()
        self.network = Sequential(Linear(8, 8), BatchNorm1d(8), ReLU(), Linear(8, 8))

    def layer(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return F.relu(self.conv1(x, edge_index))

    def nested(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.way(self.block, self.act(x), edge_index)  # type: ignore[no-any-return]

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.way(self.layer, x, edge_index)
        x = self.way(self.block, x, edge_index)
        x = self.way(self.nested, x, edge_index)
        x = self.way(self.network, x)
        x = self.way(self.act, x - 0.1)
        x = self.way(lambda x: F.relu(self.conv2(F.relu(x - 0.2), edge_index)) + x.relu(), x)
        return self.way(lambda x: self.act(self.lin1(self.lin2(x)[:, :5]) - x.relu()), x)


def gradients(model: torch.nn.Module, loss: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss.backward()
    return [torch.zeros(0) if p.grad is None else p.grad for p in model.parameters()]


@pytest.mark.parametrize("way", WAYS)
def test_checkpoints_of_a_converted_model_change_nothing(way: Any) -> None:
    torch.manual_seed(0)
    one, other = (convert(Checkpointed(w), example=(X, BATCHED, BATCH)) for w in (directly, way))
    for act in grelus(one):
        opened(act)
    other.load_state_dict(one.state_dict())
    x = X.clone().requires_grad_()
    # Two calls on other batches, so that the last one is not always the right one.
    ends = [(BATCHED, BATCH), (EDGES, BATCH.clamp(max=0)), (BATCHED, BATCH.clamp(max=0))]
    results = []
    for model in (one, other):
        outs = [model(x, *end) for end in ends]
        loss = sum((out * torch.linspace(-1, 2, out.numel()).view_as(out)).sum() for out in outs)
        assert isinstance(loss, Tensor)
        results.append([*outs, *gradients(model, loss)])
    assert_close(*results, 1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_an_activation_that_a_checkpoint_calls_stays(way: Any) -> None:
    """Its second run would come from no line of the model."""

    class Alone(Base):
        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return way(torch.relu, self.conv1(x, edge_index))

    with pytest.raises(ValueError, match=r"must have an activation .*: it calls none"):
        convert(Alone())


def in_a_thread(work: Callable[[], object]) -> None:
    """As autograd runs backward passes on a GPU."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


@pytest.mark.parametrize("run", [directly, in_a_thread])
@pytest.mark.parametrize("way", WAYS)
def test_checkpoints_of_a_graph_context_may_go_backward_after_it(way: Any, run: Any) -> None:
    torch.manual_seed(0)
    model = GCN(5, 8, 3, 4, act=opened(GReLU(8)))
    x = X.clone().requires_grad_()
    results = []
    for around in (directly, way):
        outs = []
        for edge_index, batch in ((EDGES, None), (BATCHED, BATCH), (BATCHED, None)):
            with graph_context(edge_index, batch=batch):
                outs.append(around(model, x, edge_index))
        model.zero_grad()
        with graph_context(EDGES):  # which is not that of all of them
            run((outs[0] - outs[1] + 2 * outs[2].square()).sum().backward)
        results.append([*outs, *(p.grad for p in model.parameters())])
    assert_close(*results, 1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_a_graph_context_inside_a_checkpoint_is_its_own(way: Any) -> None:
    act = opened(GReLU(5))

    def inner(x: Tensor) -> Tensor:
        with graph_context(BATCHED):
            return act(x)

    def outer(x: Tensor) -> Tensor:
        return way(inner, act(x)).square() + act(-x)  # type: ignore[no-any-return]

    def inner_first(x: Tensor) -> Tensor:
        return inner(x).square() + act(-x)

    for function in (outer, inner_first):
        x = X.clone().requires_grad_()
        with graph_context(EDGES):
            out = way(function, x)
        hidden = act(x, EDGES) if function is outer else x
        by_hand = act(hidden, BATCHED).square() + act(-x, EDGES)
        expected = torch.autograd.grad(by_hand.sum(), x)[0]
        out.sum().backward()
        assert_close(x.grad, expected, 1e-5)


def test_tasks_of_an_event_loop_have_their_own_graph() -> None:
    act = opened(GReLU(5))

    async def task(edge_index: Tensor) -> Tensor:
        with graph_context(edge_index):
            await asyncio.sleep(0.01)
            return act(X)

    async def tasks() -> list[Tensor]:
        return await asyncio.gather(task(EDGES), task(BATCHED))

    for out, edge_index in zip(asyncio.run(tasks()), (EDGES, BATCHED), strict=True):
        assert torch.equal(out, act(X, edge_index))
