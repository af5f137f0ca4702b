"""Graph classification: mini-batches gathered for many models at once, and each graph alone."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import BatchNorm1d, Linear, ReLU, Sequential
from torch_geometric.nn import GCNConv, GINConv, SAGEConv, global_add_pool
from torch_geometric.utils import add_self_loops, scatter

from graphrelu import GReLU
from graphrelu.graph import DiffusionSettings, prepare
from graphrelu.lab.models.activations import ACTIVATIONS
from graphrelu.lab.models.backbones import MaskedBatchNorm
from graphrelu.lab.models.graph_backbones import POOLING, DeepGraphGNN, GINPaperGNN, GraphGNN, pool
from graphrelu.ops.diffuse import CSR
from tests.helpers import assert_close, batch_of_graphs, gradients, opened, random_graph

SIZES = [4, 1, 7, 3, 5, 2]
NODE_PTR = torch.tensor([0, 4, 5, 12, 15, 20, 22])


def graphs(directed: bool = False) -> tuple[Tensor, Tensor]:
    edges = [
        random_graph(n, 2 * n, undirected=not directed) + start
        for n, start in zip(SIZES, NODE_PTR.tolist(), strict=False)
        if n > 1
    ]
    return torch.randn(22, 3, dtype=torch.double), torch.cat(edges, dim=1)


def model(
    backbone: str,
    activation: str,
    network: type[GraphGNN] = GraphGNN,
    norm: str | None = None,
    **options: object,
) -> GraphGNN:
    """The paper's network, the GIN paper's, or a deep one with a norm."""
    common = {"layers": 2, "activation": activation, "dropout": 0.0, **options}
    if network is DeepGraphGNN:
        common |= {"norm": norm, "residual": True}
    net = network(backbone, 3, 4, 2, **common)
    for module in net.modules():
        if isinstance(module, GReLU):
            opened(module)
    return net.double()


def select(x: Tensor, edge_index: Tensor, chosen: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """The chosen graphs as one batch, in PyG's form."""
    xs, edges, batch, first = [], [], [], 0
    for slot, graph in enumerate(chosen):
        start, end = NODE_PTR[graph].item(), NODE_PTR[graph + 1].item()
        inside = (edge_index[0] >= start) & (edge_index[0] < end)
        xs.append(x[start:end])
        edges.append(edge_index[:, inside] - start + first)
        batch.append(torch.full((end - start,), slot))
        first += end - start
    return torch.cat(xs), torch.cat(edges, dim=1), torch.cat(batch)


@pytest.mark.parametrize("activation", ["relu", "maxout", "grelu"])
@pytest.mark.parametrize("backbone", POOLING)
@pytest.mark.parametrize(
    ("network", "directed", "norm"),
    [
        (GraphGNN, False, None),
        (GraphGNN, True, None),
        (GINPaperGNN, False, None),
        (GINPaperGNN, True, None),
        (DeepGraphGNN, True, "layer"),
        (DeepGraphGNN, False, "batch"),
    ],
)
def test_gathered_batches_equal_pyg(
    network: type[GraphGNN], backbone: str, activation: str, directed: bool, norm: str | None
) -> None:
    """Two models at once, each with its own graphs and padding: outputs, gradients and running
    statistics are those of each model alone on PyG's own batch."""
    x, edge_index = graphs(directed)
    nets = [model(backbone, activation, network, norm) for _ in range(2)]
    chosen = torch.tensor([[2, 6, 0, 5], [4, 1, 6, 6]])  # 6 is no graph, but an empty place
    collection = nets[0].collect(x, edge_index, NODE_PTR)
    batch = collection.gather(chosen, collection.capacity(chosen))
    for training in (True, False):
        for net in nets:
            net.train(training)
        skeleton = model(backbone, activation, network, norm).train(training)
        parameters, buffers = stack_module_state(nets)
        state = {**parameters, **buffers}

        def forward(state: dict[str, Tensor], batch: object, net: GraphGNN = skeleton) -> Tensor:
            return functional_call(net, state, (batch,), {"batch_size": 5})

        together = vmap(forward)(state, batch)
        inputs = list(parameters.values())
        loss = together[:, :4].square().sum()
        grads = torch.autograd.grad(loss, inputs)
        for row, (net, slots) in enumerate(zip(nets, ([0, 2, 3], [0, 1]), strict=True)):
            picked = [graph for graph in chosen[row].tolist() if graph < 6]
            alone = net(*select(x, edge_index, picked), len(picked))
            assert_close(together[row, slots], alone, 1e-10)
            empty = [slot for slot in range(4) if slot not in slots]
            heads = [module for module in net.head.modules() if isinstance(module, Linear)]
            nothing = sum(head(x.new_zeros(len(empty), head.in_features)) for head in heads)
            assert_close(together[row, empty], nothing, 1e-10)
            loss = alone.square().sum() + nothing.square().sum()
            expected = torch.autograd.grad(loss, list(net.parameters()))
            for a, b in zip(grads, expected, strict=True):
                assert_close(a[row], b, 1e-9)
            for name, buffer in net.named_buffers():
                assert_close(buffers[name][row], buffer, 1e-10)


def test_gathered_matrices() -> None:
    """Rows, columns and values are the chosen graphs' blocks, and zero for the padding."""
    x, edge_index = graphs(directed=True)
    net = model("gcn", "grelu")
    collection = net.collect(x, edge_index, NODE_PTR)
    chosen = torch.tensor([[2, 0], [1, 5]])
    batch = collection.gather(chosen, collection.capacity(chosen))
    settings = DiffusionSettings(0.1, 10, "power", False)
    whole = prepare(edge_index, None, 22, x.dtype, settings, None, True)
    mass, *matrices = batch.diffusion
    for matrix, expected in zip(matrices, whole.matrices, strict=True):
        full = dense(expected)
        for row, nodes in enumerate(([*range(5, 12), *range(4)], [4, 20, 21])):
            block = torch.zeros(12, 12, dtype=torch.double)
            block[: len(nodes), : len(nodes)] = full[nodes][:, nodes]
            assert_close(dense(CSR(*(part[row] for part in matrix))), block, 1e-12)
            assert_close(mass[row, : len(nodes)], whole.mass[nodes], 1e-12)
            assert batch.is_node[row].tolist() == [True] * len(nodes) + [False] * (12 - len(nodes))
            padding = matrix.rowptr[row].diff()[len(nodes) :]
            assert padding.max() - padding.min() <= 1  # the rest is shared evenly


def dense(matrix: CSR) -> Tensor:
    size = (len(matrix.rowptr) - 1,) * 2
    return torch.sparse_csr_tensor(*matrix, size, check_invariants=False).to_dense()


def plain_gin_paper(net: GINPaperGNN, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
    """The GIN paper's network once more from PyG's parts, with ReLU."""

    def norm(own: MaskedBatchNorm) -> BatchNorm1d:
        copy = BatchNorm1d(4).double().train(own.training)
        copy.load_state_dict(own.state_dict())
        return copy

    source, target = add_self_loops(edge_index, num_nodes=len(x))[0]
    out = F.dropout(net.head[0](global_add_pool(x, batch)), net.dropout, net.training)
    for conv, outer, head in zip(net.convs, net.norms, net.head[1:], strict=True):
        if net.backbone == "gin":
            gin = GINConv(torch.nn.Identity())  # which would reset an MLP that it is given
            gin.nn = Sequential(conv.first, norm(conv.norm), ReLU(), conv.last)
            x = gin(x, edge_index)
        else:
            how = "mean" if net.backbone == "gcn" else "max"
            x = conv(scatter(x[source], target, dim_size=len(x), reduce=how))
        x = F.relu(norm(outer)(x))
        out = out + F.dropout(head(global_add_pool(x, batch)), net.dropout, net.training)
    return out


@pytest.mark.parametrize("backbone", POOLING)
def test_the_gin_papers_network(backbone: str) -> None:
    edge_index, batch = batch_of_graphs([10, 7, 13])
    x = torch.randn(30, 3, dtype=torch.double)
    net = GINPaperGNN(backbone, 3, 4, 2, dropout=0.5).double()
    assert (len(net.convs), len(net.head)) == (4, 5)
    for training in (True, False):
        net.train(training)
        torch.manual_seed(0)
        expected = plain_gin_paper(net, x, edge_index, batch)
        torch.manual_seed(0)
        assert_close(net(x, edge_index, batch), expected, 1e-10)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("backbone", POOLING)
def test_each_graph_as_if_alone(backbone: str, activation: str) -> None:
    edge_index, batch = batch_of_graphs([10, 7, 13])
    x = torch.randn(30, 3, dtype=torch.double)
    net = model(backbone, activation).eval()
    out = net(x, edge_index, batch, 3)
    assert out.shape == (3, 2)
    assert_close(net(x, edge_index, batch), out, 1e-12)
    for graph in range(3):
        nodes = (batch == graph).nonzero().flatten()
        inside = batch[edge_index[0]] == graph
        assert_close(net(x[nodes], edge_index[:, inside] - nodes[0])[0], out[graph], 1e-10)


def test_layers() -> None:
    kinds = {"gcn": GCNConv, "sage": SAGEConv, "gin": GINConv}
    for backbone, kind in kinds.items():
        net = GraphGNN(backbone, 3, 8, 2, layers=4, activation="grelu")
        assert [type(conv) for conv in net.convs] == [kind] * 4
        assert len({id(act) for act in net.acts}) == 4
        assert len(net.norms) == (4 if backbone == "gin" else 0)
    assert repr(net) == "GraphGNN(gin, 3, 8, 2, activation=grelu, dropout=0.5, layers=4)"
    assert float(net.convs[0].eps) == 0


def test_reset_leaves_nothing_behind() -> None:
    net = GraphGNN("gin", 3, 8, 2, activation="grelu")
    torch.manual_seed(1)
    net.reset_parameters()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    x, edge_index = graphs()
    net(x.float(), edge_index).sum().backward()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 1.0
    torch.manual_seed(1)
    net.reset_parameters()
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="There is no backbone 'gat'; known are gcn, sage, gin"):
        GraphGNN("gat", 3, 8, 2)
    with pytest.raises(ValueError, match="layers must be a whole number from 1, got 0"):
        GraphGNN("gcn", 3, 8, 2, layers=0)
    with pytest.raises(ValueError, match="There is no backbone 'gat'; known are gcn, sage, gin"):
        GINPaperGNN("gat", 3, 8, 2)
    net = model("gcn", "grelu", activation_options={"diffusion": "exact"})
    with pytest.raises(ValueError, match="must be 'power' or 'chebyshev' in mini-batches"):
        net.collect(*graphs(), NODE_PTR)
    net = model("gcn", "relu")
    collection = net.collect(*graphs(), NODE_PTR)
    chosen = torch.tensor([[0, 1]])
    with pytest.raises(ValueError, match="batch_size must be given"):
        net(collection.gather(chosen, collection.capacity(chosen)))
    x, edge_index = graphs()
    with pytest.raises(ValueError, match="batch must keep both ends of each edge"):
        net.collect(x, edge_index, torch.tensor([0, 2, 22]))


def test_pooling_ignores_empty_graphs() -> None:
    x = torch.tensor([[-1.0], [-3.0], [5.0]])
    batch = torch.tensor([0, 0, 2])
    expected = {"mean": [-2.0, 0.0, 5.0], "max": [-1.0, 0.0, 5.0], "sum": [-4.0, 0.0, 5.0]}
    for how, values in expected.items():
        assert pool(x, batch, 3, how).flatten().tolist() == values


def test_masked_norm_equals_batch_norm() -> None:
    norm, expected = MaskedBatchNorm(4).double(), torch.nn.BatchNorm1d(4).double()
    is_node = torch.rand(20) < 0.6
    for _ in range(3):
        x = 3 * torch.randn(20, 4, dtype=torch.double) + 1
        a, b = x.clone().requires_grad_(), x[is_node].requires_grad_()
        out, reference = norm(a, is_node)[is_node], expected(b)
        assert_close(out, reference, 1e-12)
        for grad, other in zip(
            gradients(out.square() + out, [a, *norm.parameters()]),
            gradients(reference.square() + reference, [b, *expected.parameters()]),
            strict=True,
        ):
            assert_close(grad[is_node] if len(grad) == 20 else grad, other, 1e-10)
    assert_close(norm.running_mean, expected.running_mean, 1e-12)
    assert_close(norm.running_var, expected.running_var, 1e-12)
    assert_close(norm.eval()(x), expected.eval()(x), 1e-12)
    assert_close(norm.train()(x), expected.train()(x), 1e-12)
