"""HeteroGReLU against GReLU on the homogeneous graph."""

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.datasets import FakeHeteroDataset
from torch_geometric.nn import GraphSAGE, HeteroConv, SAGEConv, to_hetero
from torch_geometric.transforms import ToUndirected

from graphrelu import GReLU, HeteroGReLU
from tests.helpers import assert_close, opened, outcome

CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")


def edges(num_sources: int, num_targets: int, count: int) -> Tensor:
    return torch.stack([torch.randint(num_sources, (count,)), torch.randint(num_targets, (count,))])


def moved(act: HeteroGReLU) -> HeteroGReLU:
    """Away from ReLU."""
    for own in act.acts.values():
        opened(own)
    return act.double()


def test_one_type_is_grelu_on_the_merged_graph() -> None:
    act = moved(HeteroGReLU({"node": 4}, K=3))
    plain = GReLU(4, K=3).double()
    plain.load_state_dict(act.acts["node"].state_dict())
    x = torch.randn(9, 4, dtype=torch.double, requires_grad=True)
    relations = {("node", str(i), "node"): edges(9, 9, 10) for i in range(3)}
    weight = torch.cat([torch.rand(20, dtype=torch.double), torch.ones(10)])
    weights = dict(zip(relations, weight.split(10)[:2], strict=False))  # the last one has none
    out = act({"node": x}, relations, weights)["node"]
    merged = torch.cat(list(relations.values()), dim=1)
    expected = outcome(plain(x, merged, weight), [x, *plain.parameters()])
    assert_close(outcome(out, [x, *act.parameters()]), expected)


def test_dropout() -> None:
    """A node or a channel is ReLU in a training step, or as without dropout."""
    act = moved(HeteroGReLU({"paper": 20}, dropout=0.5))
    x, relations = torch.randn(50, 20, dtype=torch.double), {CITES: edges(50, 50, 99)}
    kept = act.eval()({"paper": x}, relations)["paper"]
    out = act.train()({"paper": x}, relations)["paper"]
    is_relu = out == x.relu()
    assert bool((is_relu | (out == kept)).all())
    assert 0 < int(is_relu.all(dim=1).sum()) < 50
    assert 0 < int(is_relu.all(dim=0).sum()) < 20


def test_types_and_relations_may_be_missing() -> None:
    act = moved(HeteroGReLU({"paper": 4, "author": 4}))
    x = torch.randn(3, 4, dtype=torch.double)
    out = act({"paper": x}, {})
    assert out.keys() == {"paper"}
    empty = act({"paper": x, "author": x[:0]}, {WRITES: edges(1, 1, 0)})
    assert_close(empty, out | {"author": x[:0]})


@pytest.mark.parametrize("dtype", [torch.double, torch.float, torch.bfloat16, torch.half], ids=str)
@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_types_and_backends(
    dtype: torch.dtype, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Near the numbers in float64; a fresh module is ReLU."""
    act = moved(HeteroGReLU({"paper": 3, "author": 2}))
    x_dict = {"paper": torch.randn(9, 3), "author": torch.randn(7, 2)}
    relations = {WRITES: edges(7, 9, 20), CITES: edges(9, 9, 20)}
    low = {name: x.to(dtype) for name, x in x_dict.items()}
    expected = act({name: x.double() for name, x in low.items()}, relations)
    monkeypatch.setenv("GRAPHRELU_BACKEND", backend)
    act = act if dtype == torch.double else act.float()
    for name, out in act(low, relations).items():
        assert out.dtype == dtype
        assert_close(out.double(), expected[name], 1e-10 if dtype == torch.double else 1e-2)
    act.reset_parameters()
    assert all(torch.equal(out, low[name].relu()) for name, out in act(low, relations).items())


def test_a_graph_that_changes_is_seen() -> None:
    act, x = moved(HeteroGReLU({"paper": 4})), {"paper": torch.randn(7, 4, dtype=torch.double)}
    relations = {CITES: edges(7, 7, 9)}
    first = act(x, relations)["paper"]
    assert torch.equal(act(x, relations)["paper"], first)
    relations[CITES].numpy()[0, :4] = 0
    changed = act(x, relations)["paper"]
    assert not torch.equal(changed, first)
    for twin in (copy.deepcopy(act), pickle.loads(pickle.dumps(act))):
        assert torch.equal(twin(x, relations)["paper"], changed)


def hetero_conv(metadata: tuple) -> torch.nn.Module:
    return HeteroConv({relation: SAGEConv((-1, -1), 8) for relation in metadata[1]})


def hetero_sage(metadata: tuple) -> torch.nn.Module:
    return to_hetero(GraphSAGE((-1, -1), 8, 1), metadata)


@pytest.mark.parametrize("network", [hetero_conv, hetero_sage])
def test_behind_pygs_networks_on_mini_batches(network: Callable) -> None:
    data = ToUndirected()(FakeHeteroDataset(num_graphs=1, avg_num_nodes=40)[0])
    conv, act = network(data.metadata()), HeteroGReLU(dict.fromkeys(data.node_types, 8))
    with torch.no_grad():
        conv(data.x_dict, data.edge_index_dict)  # the convolutions' sizes
    optimizer = torch.optim.Adam([*conv.parameters(), *act.parameters()], lr=0.01)
    for _ in range(5):
        nodes = {name: torch.randperm(data[name].num_nodes)[:20] for name in data.node_types}
        batch = data.subgraph(nodes)
        optimizer.zero_grad()
        out = act(conv(batch.x_dict, batch.edge_index_dict), batch.edge_index_dict)
        sum(value.square().sum() for value in out.values()).backward()
        optimizer.step()
    assert all(bool(own.channel_mlp.bias.any()) for own in act.acts.values())


ACT, X, LOOP = HeteroGReLU({"paper": 4}), {"paper": torch.zeros(3, 4)}, edges(1, 1, 1)
BOTH, TWO = HeteroGReLU({"paper": 4, "author": 4}), X | {"author": torch.zeros(2, 4)}


@pytest.mark.parametrize(
    ("message", "call", "arguments"),
    [
        ("channels must be a dictionary from node types to sizes", HeteroGReLU, ({},)),
        ("mode must be left out", partial(HeteroGReLU, mode="paper"), ({"paper": 4},)),
        ("x_dict must have at least one node type", ACT, ({}, {})),
        ("node types among author, got 'paper'", HeteroGReLU({"author": 4}), (X, {})),
        (r"shape \[num_nodes, 5\], got \[3, 4\]", HeteroGReLU({"paper": 5}), (X, {})),
        ("relations between node types of x_dict, got", ACT, (X, {WRITES: LOOP})),
        (r"must be of shape \[2, num_edges\], got \[3\]", ACT, (X, {CITES: LOOP[0].repeat(3)})),
        ("must have relations of edge_index_dict", ACT, (X, {}, {CITES: torch.ones(3)})),
        (r"weight per edge, got shape \[3\]", ACT, (X, {CITES: LOOP}, {CITES: torch.ones(3)})),
        *(
            (rf"'writes'.*between 0 and {last}, the nodes of {name}, got {got}", BOTH, (TWO, edge))
            for last, name, got, edge in (
                (2, "'paper'", 4, {WRITES: torch.tensor([[0], [4]])}),
                (1, "'author'", 2, {WRITES: torch.tensor([[2], [0]])}),
                (2, "'paper'", -1, {WRITES: torch.tensor([[0], [-1]])}),
            )
        ),
    ],
)
def test_errors(message: str, call: Callable[..., Any], arguments: tuple) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)


def test_repr() -> None:
    assert str(HeteroGReLU({"paper": 4, "author": 8})) == "HeteroGReLU({'paper': 4, 'author': 8})"
