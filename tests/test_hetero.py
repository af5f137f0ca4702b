"""HeteroGReLU against GReLU on the homogeneous graph."""

import copy
import pickle

import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.datasets import FakeHeteroDataset
from torch_geometric.nn import HeteroConv, SAGEConv, to_hetero
from torch_geometric.transforms import ToUndirected

from graphrelu import GReLU, HeteroGReLU
from tests.helpers import assert_close, gradients

SIZES = {"paper": 7, "author": 5, "venue": 3}
RELATIONS = {
    ("author", "writes", "paper"): 12,
    ("paper", "written_by", "author"): 12,
    ("paper", "cites", "paper"): 9,
    ("paper", "in", "venue"): 7,
}


def edges(num_sources: int, num_targets: int, count: int) -> Tensor:
    return torch.stack([torch.randint(num_sources, (count,)), torch.randint(num_targets, (count,))])


def graph(channels: int = 4) -> tuple[dict[str, Tensor], dict[tuple[str, str, str], Tensor]]:
    x = {name: torch.randn(size, channels, dtype=torch.double) for name, size in SIZES.items()}
    relations = {r: edges(SIZES[r[0]], SIZES[r[2]], count) for r, count in RELATIONS.items()}
    return x, relations


def moved(act: torch.nn.Module) -> torch.nn.Module:
    """Away from ReLU."""
    with torch.no_grad():
        for parameter in act.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return act.double()


def union(relations: dict[tuple[str, str, str], Tensor]) -> Tensor:
    offset = {"paper": 0, "author": 7, "venue": 12}
    return torch.cat(
        [e + torch.tensor([[offset[r[0]]], [offset[r[2]]]]) for r, e in relations.items()], dim=1
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_one_type_is_grelu_on_the_merged_graph(weighted: bool) -> None:
    act = moved(HeteroGReLU({"node": 4}, K=3))
    plain = GReLU(4, K=3).double()
    plain.load_state_dict(act.acts["node"].state_dict())
    x = torch.randn(9, 4, dtype=torch.double, requires_grad=True)
    relations = {("node", str(i), "node"): edges(9, 9, 10) for i in range(3)}
    weights = {r: torch.rand(10, dtype=torch.double) for r in relations} if weighted else None
    merged = torch.cat(list(relations.values()), dim=1)
    weight = None if weights is None else torch.cat(list(weights.values()))
    out, expected = act({"node": x}, relations, weights)["node"], plain(x, merged, weight)
    assert_close(out, expected)
    inputs = [x, *act.parameters()], [x, *plain.parameters()]
    for own, other in zip(gradients(out, inputs[0]), gradients(expected, inputs[1]), strict=True):
        assert_close(own, other)


def test_node_weights_are_those_of_the_homogeneous_graph() -> None:
    """Where the types share parameters."""
    act = moved(HeteroGReLU(dict.fromkeys(SIZES, 4)))
    for name in ("author", "venue"):
        act.acts[name].load_state_dict(act.acts["paper"].state_dict())
        act.acts[name].channel_mlp.weight.data.zero_()  # each has a mean of its own
    act.acts["paper"].channel_mlp.weight.data.zero_()
    x, relations = graph()
    inputs = [value.requires_grad_() for value in x.values()]
    plain = GReLU(4).double()
    plain.load_state_dict(act.acts["paper"].state_dict())
    out = torch.cat(list(act(x, relations).values()))
    expected = plain(torch.cat(inputs), union(relations))
    assert_close(out, expected)
    shared = plain.node_mlp.first.weight
    parts = [own.node_mlp.first.weight for own in act.acts.values()]
    *own_inputs, a, b, c = gradients(out, [*inputs, *parts])
    *other_inputs, other = gradients(expected, [*inputs, shared])
    for own, expected in zip([*own_inputs, a + b + c], [*other_inputs, other], strict=True):
        assert_close(own, expected)


def test_a_fresh_module_is_relu_bit_for_bit() -> None:
    act = HeteroGReLU({"paper": 4, "author": 4, "venue": 4}, dropout=0.2)
    x, relations = graph()
    x = {name: value.float().requires_grad_() for name, value in x.items()}
    out = torch.cat(list(act(x, relations).values()))
    expected = torch.cat([value.relu() for value in x.values()])
    assert torch.equal(out, expected)
    inputs = list(x.values())
    for own, other in zip(gradients(out, inputs), gradients(expected, inputs), strict=True):
        assert torch.equal(own, other)


def test_gradcheck() -> None:
    act = moved(HeteroGReLU({"paper": 3, "author": 2}, steps=3))
    relation = {("author", "writes", "paper"): torch.tensor([[0, 1, 1], [2, 0, 1]])}

    def function(paper: Tensor, author: Tensor) -> tuple[Tensor, ...]:
        return tuple(act({"paper": paper, "author": author}, relation).values())

    x = [torch.randn(n, c, dtype=torch.double, requires_grad=True) for n, c in ((3, 3), (2, 2))]
    assert torch.autograd.gradcheck(function, x)


def test_types_and_relations_may_be_missing() -> None:
    act = moved(HeteroGReLU({"paper": 4, "author": 4}))
    x = torch.randn(3, 4, dtype=torch.double)
    out = act({"paper": x}, {})
    assert out.keys() == {"paper"}
    empty = act({"paper": x, "author": x[:0]}, {("author", "writes", "paper"): edges(1, 1, 0)})
    assert_close(empty["paper"], out["paper"])
    assert empty["author"].shape == (0, 4)


def test_a_graph_that_changes_is_seen() -> None:
    act = moved(HeteroGReLU(dict.fromkeys(SIZES, 4)))
    x, relations = graph()
    first = act(x, relations)["paper"]
    assert act._merged is not None
    assert torch.equal(act(x, relations)["paper"], first)
    relations["paper", "cites", "paper"][0, :4] = 0
    changed = act(x, relations)["paper"]
    assert not torch.equal(changed, first)
    fresh = copy.deepcopy(act)
    assert fresh._merged is None
    assert torch.equal(fresh(x, relations)["paper"], changed)
    assert torch.equal(pickle.loads(pickle.dumps(act))(x, relations)["paper"], changed)


class Network(torch.nn.Module):
    def __init__(self, data: HeteroData, convolutions: str) -> None:
        super().__init__()
        if convolutions == "HeteroConv":
            conv = {r: SAGEConv((-1, -1), 8) for r in data.edge_types}
            self.conv: torch.nn.Module = HeteroConv(conv)
        else:
            self.conv = to_hetero(One(), data.metadata())
        self.act = HeteroGReLU(dict.fromkeys(data.node_types, 8))

    def forward(self, x_dict: dict, edge_index_dict: dict) -> dict[str, Tensor]:
        return self.act(self.conv(x_dict, edge_index_dict), edge_index_dict)


class One(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = SAGEConv((-1, -1), 8)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)


@pytest.mark.parametrize("convolutions", ["HeteroConv", "to_hetero"])
def test_in_pygs_networks_and_mini_batches(convolutions: str) -> None:
    data = ToUndirected()(FakeHeteroDataset(num_graphs=1, avg_num_nodes=40)[0])
    network = Network(data, convolutions)
    with torch.no_grad():
        network(data.x_dict, data.edge_index_dict)  # the convolutions' sizes
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(5):
        nodes = {name: torch.randperm(data[name].num_nodes)[:20] for name in data.node_types}
        batch = data.subgraph(nodes)
        optimizer.zero_grad()
        out = network(batch.x_dict, batch.edge_index_dict)
        sum(value.square().sum() for value in out.values()).backward()
        optimizer.step()
    weights = [act.channel_mlp.bias for act in network.act.acts.values()]
    assert all(bool(weight.any()) for weight in weights)


X = {"paper": torch.zeros(3, 4)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: HeteroGReLU({}), "channels must be a dictionary from node types to sizes"),
        (lambda: HeteroGReLU({"paper": 4}, mode="paper"), "mode must be left out"),
        (lambda: HeteroGReLU({"paper": 4})({}, {}), "x_dict must have a node type at least"),
        (lambda: HeteroGReLU({"author": 4})(X, {}), "node types among author, got 'paper'"),
        (lambda: HeteroGReLU({"paper": 5})(X, {}), r"shape \[num_nodes, 5\], got \[3, 4\]"),
        (
            lambda: HeteroGReLU({"paper": 4})(X, {("paper", "by", "author"): edges(1, 1, 1)}),
            "relations between node types of x_dict, got",
        ),
        (
            lambda: HeteroGReLU({"paper": 4})(X, {("paper", "cites", "paper"): torch.zeros(3)}),
            r"must have shape \[2, num_edges\], got \[3\]",
        ),
        (
            lambda: HeteroGReLU({"paper": 4})(X, {}, {("paper", "cites", "paper"): torch.ones(3)}),
            "edge_weight_dict must have relations of edge_index_dict",
        ),
        (
            lambda: HeteroGReLU({"paper": 4})(
                X,
                {("paper", "cites", "paper"): edges(3, 3, 2)},
                {("paper", "cites", "paper"): torch.ones(3)},
            ),
            r"one weight per edge, got shape \[3\]",
        ),
    ],
)
def test_errors(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()  # type: ignore[operator]
    assert str(caught.value).count("\n") == 0


def test_repr() -> None:
    assert str(HeteroGReLU({"paper": 4, "author": 8})) == "HeteroGReLU({'paper': 4, 'author': 8})"
