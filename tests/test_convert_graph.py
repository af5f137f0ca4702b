"""Which graph reaches an activation of a converted model, and what happens without one."""

import copy
import threading
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import (
    GCN,
    GCNConv,
    GraphSAGE,
    HeteroConv,
    InstanceNorm,
    SAGEConv,
    Sequential,
    global_mean_pool,
)
from torch_geometric.nn.models import MLP
from torch_geometric.utils import to_torch_csr_tensor

from graphrelu import convert, replacements
from graphrelu.conversion.frames import current_frame
from tests.helpers import batch_of_graphs, opened, random_graph
from tests.test_convert import grelus

X, EDGES = torch.randn(30, 5, generator=torch.Generator().manual_seed(1)), random_graph(30, 90)


def converted_gcn(kind: Any = GCN, **options: Any) -> Any:
    converted = convert(kind(5, 8, 2, out_channels=4, **options)).eval()
    for act in grelus(converted):
        opened(act)
    return converted


def test_trim_to_layer() -> None:
    # 10 seed nodes, 8 at one hop, 12 at two; edges of the first hop come first.
    hop1 = torch.stack([torch.randint(10, 18, (20,)), torch.randint(10, (20,))])
    hop2 = torch.stack([torch.randint(18, 30, (24,)), torch.randint(10, 18, (24,))])
    edge_index = torch.cat([hop1, hop2], dim=1)
    model = convert(GraphSAGE(5, 8, 3, out_channels=4))
    first, second = map(opened, grelus(model))
    out = model(
        X,
        edge_index,
        num_sampled_nodes_per_hop=[10, 8, 12],
        num_sampled_edges_per_hop=[20, 24],
    )
    x = first(model.convs[0](X, edge_index), edge_index)
    x = second(model.convs[1](x[:18], hop1), hop1)
    assert torch.equal(out, model.convs[2](x[:10], hop1[:, :0]))


def test_batches_are_activated_graph_by_graph() -> None:
    edge_index, batch = batch_of_graphs([12, 8, 10])
    model = converted_gcn(norm="instance_norm")
    assert isinstance(model.norms[0], InstanceNorm)
    out = model(X, edge_index, batch=batch, batch_size=3)
    for graph in range(3):
        nodes = (batch == graph).nonzero().view(-1)
        inside = edge_index[:, batch[edge_index[0]] == graph] - nodes[0]
        single = torch.zeros(len(nodes), dtype=torch.long)
        alone = model(X[nodes], inside, batch=single)
        torch.testing.assert_close(out[nodes], alone, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(out, model(X, edge_index), atol=1e-3)


def test_sparse_adjacency() -> None:
    model = converted_gcn(GraphSAGE)
    edge_index = torch.unique(EDGES, dim=1)  # a sparse matrix adds up repeated edges
    adj_t = to_torch_csr_tensor(edge_index.flip(0), size=(30, 30))
    torch.testing.assert_close(model(X, adj_t), model(X, edge_index), atol=1e-5, rtol=1e-4)


def test_graph_from_the_call_before_any_convolution() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin, self.act, self.conv = torch.nn.Linear(5, 8), torch.nn.ReLU(), GCNConv(8, 3)

        def forward(self, x: Tensor, adj_t: Tensor, edge_weight: Tensor) -> Tensor:
            return self.conv(self.act(self.lin(x)), adj_t, edge_weight)

    model, weight = convert(Net()), torch.rand(90)
    (act,) = map(opened, grelus(model))
    expected = model.conv(act(model.lin(X), EDGES, weight), EDGES, weight)
    assert torch.equal(model(X, EDGES, edge_weight=weight), expected)
    with pytest.raises(RuntimeError, match="The GReLU at 'act' has no graph"):
        model(X, None, None)


def test_graph_from_the_call_of_a_sequential() -> None:
    layers = [(torch.nn.Linear(5, 8), "x -> x"), torch.nn.ReLU()]
    model = convert(Sequential("x, edge_index", [*layers, (GCNConv(8, 3), "x, edge_index -> x")]))
    (act,) = map(opened, grelus(model))
    x = act(model.module_0(X), EDGES)
    assert torch.equal(model(X, EDGES), model.module_2(x, EDGES))


def test_a_graph_by_another_name() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin, self.act, self.conv = torch.nn.Linear(5, 8), torch.nn.ReLU(), GCNConv(8, 3)

        def forward(self, x: Tensor, edges: Tensor, pairs: Tensor | None = None) -> Tensor:
            return self.conv(self.act(self.lin(x)), edges)

    model = convert(Net())
    (act,) = map(opened, grelus(model))
    assert torch.equal(model(X, EDGES), model.conv(act(model.lin(X), EDGES), EDGES))
    with pytest.raises(RuntimeError, match="has no graph"):  # one of two: which one?
        model(X, EDGES, EDGES)


def test_graph_of_the_last_convolution_in_a_part() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.act = GCN(5, 8, 2), torch.nn.ReLU()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.act(self.encoder(x, edge_index.flip(0)))

    model = convert(Net())
    for act in grelus(model):
        opened(act)
    x, edge_index = model.encoder(X, EDGES.flip(0)), EDGES.flip(0)
    assert torch.equal(model(X, EDGES), grelus(model)[1](x, edge_index))


def test_threads() -> None:
    model = converted_gcn()
    inputs = [(torch.randn(n, 5), random_graph(n, 4 * n)) for n in range(20, 28)]
    expected = [model(*args) for args in inputs]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(20):
            if not torch.equal(model(*inputs[i]), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_no_graph_outlives_its_call() -> None:
    model = converted_gcn()
    with pytest.raises(RuntimeError, match="out of bounds"):
        model(X[:10], EDGES + 20)
    assert current_frame() is None
    model(X, EDGES)
    assert current_frame() is None
    with pytest.raises(RuntimeError, match="The GReLU at 'act' has no graph: call the converted"):
        model.act(torch.randn(30, 8))
    with pytest.raises(RuntimeError, match="call the converted model itself with its edge_index"):
        model.forward(X, EDGES)


def test_an_interrupted_call_is_forgotten() -> None:
    model, other = converted_gcn(), converted_gcn()
    edge_index, batch = batch_of_graphs([12, 8, 10])
    expected = model(X, EDGES)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    def work() -> None:  # in a thread of its own, as torch calls no hooks then
        handle = model.convs[1].register_forward_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(X, edge_index, batch=batch)
        handle.remove()
        assert torch.equal(model(X, EDGES), expected)
        with pytest.raises(RuntimeError, match="has no graph"):
            other.act(torch.randn(30, 8))
        done.append(True)

    done: list[bool] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done


def test_layerwise_inference_says_what_to_use_instead() -> None:
    model = converted_gcn(GraphSAGE)
    with pytest.raises(RuntimeError, match=r"on all nodes at once instead of by inference\(\)"):
        model.inference_per_layer(0, X, EDGES, 10)


def test_part_of_the_nodes() -> None:
    class Sampled(torch.nn.Module):
        """Two node sets, as in older samplers."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act = SAGEConv(5, 8), torch.nn.ReLU()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.act(self.conv((x, x[:10]), edge_index))

    edge_index = torch.stack([EDGES[0], EDGES[1] % 10])
    with pytest.raises(ValueError, match=r"row for each of the 30 nodes.*got 10.*exclude=\['act'"):
        convert(Sampled())(X, edge_index)


def test_batch_that_does_not_fit() -> None:
    class Half(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act = GCNConv(5, 8), torch.nn.ReLU()

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return self.act(self.conv(x[:15], edge_index % 15))

    with pytest.raises(ValueError, match="row for each of the 30 entries of batch, got 15"):
        convert(Half())(X, EDGES, torch.zeros(30, dtype=torch.long))


def test_another_path_than_the_example() -> None:
    class Forked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = torch.nn.ModuleList([GCNConv(5, 5) for _ in range(3)])
            self.act = torch.nn.ReLU()

        def forward(self, x: Tensor, edge_index: Tensor, depth: int) -> Tensor:
            for conv in self.convs[:depth]:
                x = self.act(conv(x, edge_index))
            return x

    model = convert(Forked(), example=(X, EDGES, 2))
    model(X, EDGES, 1)
    with pytest.raises(RuntimeError, match=r"not called after 'convs.2' when .* an example"):
        model(X, EDGES, 3)
    assert convert(Forked(), example={"x": X, "edge_index": EDGES, "depth": 3})(X, EDGES, 3).any()


def test_devices_follow_the_layers() -> None:
    model = GCN(5, 8, 3, out_channels=4)
    model.convs[1].to("meta")
    devices = [act.channel_mlp.weight.device.type for act in grelus(convert(model))]
    assert devices == ["cpu", "meta"]


class Head(torch.nn.Module):
    """Its only activation comes after a pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.lin, self.act = GCNConv(5, 8), torch.nn.Linear(8, 8), torch.nn.ReLU()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.act(self.lin(global_mean_pool(self.conv(x, edge_index), batch)))


class Unknown(torch.nn.Module):
    """A function without known width comes before the activation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act = GCNConv(5, 8), torch.nn.ReLU()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.act(torch.cat([x, self.conv(x, edge_index)], dim=1))


class Misleading(torch.nn.Module):
    """Its parts suggest another width than it has."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.act = Unknown(), torch.nn.ReLU()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.act(self.block(x, edge_index))


def test_widths_that_mislead() -> None:
    model = Misleading()
    model.block.out_channels = 8
    model.block.act = torch.nn.Identity()
    with pytest.raises(ValueError, match=r"x at 'act' must have 8 channels.*got 13.*an example"):
        convert(model)(X, EDGES)
    assert [act.channels for act in grelus(convert(model, example=(X, EDGES)))] == [13]


class Branching(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(5, 8)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        x = torch.relu(self.conv(x, edge_index))
        return x if batch is None else global_mean_pool(x, batch)


class TrainsOtherwise(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(5, 8)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = torch.relu(self.conv(x, edge_index))
        return x + torch.randn_like(x) if self.training else x


class Looping(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(5, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        while x.sum() > 0:
            x = torch.relu(self.conv(x, edge_index))
        return x


def gcn(**options: Any) -> Any:
    return GCN(5, 8, 2, **options)


@pytest.mark.parametrize(
    ("error", "message", "model", "options"),
    [
        (TypeError, "model must be a torch.nn.Module, got str", "GCN", {}),
        (ValueError, "model must have a graph convolution, got MLP", MLP([5, 8, 2]), {}),
        (ValueError, "must have an activation .*: it has none", gcn(act=None), {}),
        (ValueError, "activation.* act: ELU.* stays: no GReLU equals it", gcn(act="elu"), {}),
        (ValueError, "activation.*it follows a pooling", Head(), {}),
        (ValueError, "model must not be converted already", convert(gcn()), {}),
        (ValueError, "must not be compiled yet", torch.compile(gcn()), {}),
        (ValueError, "one type of nodes", HeteroConv({("a", "to", "a"): GCNConv(5, 8)}), {}),
        (ValueError, "example must be given.*channels at 'act' does not follow", Unknown(), {}),
        (
            ValueError,
            "'Branching' cannot because its forward asks what 'batch' is",
            Branching(),
            {},
        ),
        (ValueError, "because its forward takes other steps in training", TrainsOtherwise(), {}),
        (ValueError, "because its forward cannot be traced", Looping(), {}),
        (ValueError, "force must be True for K=1", gcn(), {"K": 1}),
        (ValueError, "force must be True for mode='paper'", gcn(), {"mode": "paper"}),
        (ValueError, "alpha must be in", gcn(), {"alpha": 2.0}),
        (TypeError, "unexpected keyword argument 'beta'", gcn(), {"beta": 2.0}),
        (TypeError, "negative_slope must not be given", gcn(), {"negative_slope": 0.1}),
        (TypeError, "channels must not be given", gcn(), {"channels": 8}),
        (ValueError, "include must name modules of the model, got 'b'", gcn(), {"include": ["b"]}),
        (TypeError, "exclude must be a list of names, got 'act'", gcn(), {"exclude": "act"}),
        (ValueError, "activation.*act: .* stays: it is excluded", gcn(), {"exclude": ["act"]}),
    ],
)
def test_what_cannot_be_converted(
    error: type[Exception], message: str, model: Any, options: dict[str, Any]
) -> None:
    before = copy.deepcopy(model)
    with pytest.raises(error, match=message) as caught:
        convert(model, inplace=True, **options)
    assert "\n" not in str(caught.value)
    assert str(model) == str(before)
    assert type(model) is type(before)


def test_replacements_of_an_unconverted_model() -> None:
    with pytest.raises(ValueError, match="model must be a converted one"):
        replacements(gcn())


def test_dictionaries_of_graphs() -> None:
    model = convert(
        Sequential("x, edge_index", [(GCNConv(5, 8), "x, edge_index -> x"), torch.nn.ReLU()])
    )
    with pytest.raises(TypeError, match="edge_index must belong to one graph, got a dictionary"):
        model(X, {("a", "to", "a"): EDGES})
    assert current_frame() is None
