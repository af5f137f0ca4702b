"""Models as people write them: PyG's own, functional ones, and the structure of its examples."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, LayerNorm, Linear, ModuleList, ReLU
from torch_geometric import nn as gnn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCN, MLP, GATConv, GCNConv, GINConv, GraphConv, SAGEConv
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor

from tests.helpers import batch_of_graphs, random_graph

torch.manual_seed(0)
SIZES = [12, 8, 10]
BATCHED, BATCH = batch_of_graphs(SIZES)
X, EDGES, WEIGHT = torch.randn(30, 5), random_graph(30, 90), torch.rand(90)
X2, EDGES2, WEIGHT2 = torch.randn(21, 5), random_graph(21, 60), torch.rand(60)
PLAIN: list[Any] = [(X, EDGES), (X2, to_torch_csr_tensor(torch.unique(EDGES2, dim=1)))]
BATCHES: list[Any] = [(X, BATCHED, BATCH), (X2, EDGES2, None)]
DEGREES = torch.tensor([1, 5, 10, 8])
PNA_OPTIONS = {"aggregators": ["mean", "max"], "scalers": ["identity"], "deg": DEGREES}


def data(sizes: list[int] = SIZES, **values: Any) -> Batch:
    graphs = [Data(x=torch.randn(n, 5), edge_index=random_graph(n, 3 * n)) for n in sizes]
    return Batch.from_data_list([Data(**graph.to_dict(), **values) for graph in graphs])


class Base(torch.nn.Module):
    """Three layers to write a forward with."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = GCNConv(5, 8), GCNConv(8, 8), GCNConv(8, 4)
        self.lin1, self.lin2, self.norm = Linear(5, 8), Linear(8, 8), LayerNorm(8)


class IsNone(Base):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if edge_weight is None:
            x = F.relu(self.conv1(x, edge_index))
        else:
            x = F.leaky_relu(self.conv1(x, edge_index, edge_weight), 0.2)
        return self.conv3(torch.relu(self.conv2(x, edge_index, edge_weight)), edge_index)


class IfTraining(Base):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index).relu()
        if self.training:
            x = F.dropout(F.relu(self.lin2(x)), 0.4)
        return self.conv3(x, edge_index)


class Depth(torch.nn.Module):
    """As many steps as the input asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = ModuleList([GraphConv(5, 5) for _ in range(4)])

    def forward(self, x: Tensor, edge_index: Tensor, depth: int, tied: bool = False) -> Tensor:
        for conv in self.convs[:depth]:
            x = F.relu(self.convs[0](x, edge_index) if tied else conv(x, edge_index)) + x
        return x


class InPlace(Base):
    """Writes into what it reads later, into parts of it too."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index)
        y = 1 * x
        x.relu_()
        F.relu(y, inplace=True)
        y = y + F.leaky_relu(x, True)  # a slope of 1, not in place
        z = self.conv2(x + y, edge_index) * 1
        z[:, :4].relu_()
        return self.conv3(F.leaky_relu_(1 * z, 0.3), edge_index)


class Transposed(Base):
    """Features that are laid out by columns, the gradients of which are rounded otherwise."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index).t().contiguous().t()
        return self.conv3(F.relu(self.lin2(x)) + F.relu(x), edge_index).t()


class SharedModule(Base):
    """One module for layers, a branch and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = ReLU(inplace=True)
        self.head = torch.nn.Sequential(Linear(8, 8), self.relu, Linear(8, 3))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.relu(self.conv1(x, edge_index))
        if int(batch.max()) > 0:
            x = self.relu(self.lin2(x)) + x
        x = self.relu(self.norm(self.conv2(x, edge_index)))
        return self.head(gnn.global_mean_pool(x, batch))


class AsksForItsClass(Base):
    def __init__(self) -> None:
        super().__init__()
        self.layers = ModuleList([self.conv1, ReLU(), self.conv2, torch.nn.LeakyReLU(0.2)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            if isinstance(layer, (ReLU, torch.nn.LeakyReLU)):
                x = layer(x)
            elif type(layer) is GCNConv:
                x = layer(x, edge_index)
        return x * float(self.layers[3].negative_slope)  # type: ignore[arg-type]


class RunsItsChildren(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.act, self.conv2, self.lin = (
            GCNConv(5, 8),
            ReLU(),
            GCNConv(8, 8),
            Linear(8, 3),
        )

    def forward(self, x: Tensor, edge_index: Tensor, embed: bool = False) -> Tensor:
        for layer in list(self.children())[: -1 if embed else 4]:
            x = layer(x, edge_index) if isinstance(layer, GCNConv) else F.relu(layer(x))
        return x


class SharedWithAConvolution(torch.nn.Module):
    """An activation that is met inside a convolution first, and matrices that no node has."""

    def __init__(self) -> None:
        super().__init__()
        act = ReLU()
        self.conv = GINConv(torch.nn.Sequential(Linear(5, 8), act))
        self.act = act

    def forward(self, x: Tensor, edge_index: Tensor, sparse: bool = False) -> Tensor:
        x = self.act(self.conv(x, edge_index) - 0.1)
        return torch.relu((x - 0.5).to_sparse()).to_dense() if sparse else x


class HiddenInAList(Base):
    """Modules that the model does not know to be its own, and a function as an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.acts = [torch.relu, ReLU()]
        self.known = self.acts[1]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.acts[0](self.conv1(x, edge_index))
        return self.conv3(self.acts[1](self.conv2(x, edge_index)), edge_index)


class Catches(Base):
    """A failed call within is not the end."""

    def forward(self, x: Tensor, edge_index: Tensor, wrong: bool = False) -> Tensor:
        h = F.relu(self.conv1(x, edge_index))
        try:
            h = self.conv2(x if wrong else h, edge_index)
        except RuntimeError:
            h = self.lin2(h)
        return self.conv3(F.relu(h), edge_index)


def _block(conv: torch.nn.Module, x: Tensor, edge_index: Tensor) -> Tensor:
    return _activate(conv(x, edge_index))


def _activate(x: Tensor) -> Tensor:
    return F.relu(x)


class Helpers(Base):
    def activate(self, x: Tensor) -> Tensor:
        return torch.relu(x)

    def forward(self, x: Tensor, edge_index: Tensor, twice: bool = False) -> Tensor:
        x = _block(self.conv2, _block(self.conv1, x, edge_index), edge_index)
        if twice:
            x = _activate(x - 0.1)
        x = self.activate(self.lin2(x)) + self.activate(self.norm(x))
        return _block(self.conv3, _activate(x - 0.2), edge_index)


class Pooled(Base):
    """The graph shrinks on the way, and an activation comes before the next layer."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.act = gnn.TopKPooling(8), torch.nn.LeakyReLU(0.5)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = F.relu(self.conv1(x, edge_index))
        x, edge_index, _, batch, _, _ = self.pool(x, edge_index, batch=batch)
        x = F.relu(self.conv2(self.act(x), edge_index))
        return F.relu(self.lin2(gnn.global_mean_pool(x, batch)))


class WithoutMessagePassing(Base):
    """Products with a sparse matrix, as the first GCN was written."""

    def forward(self, x: Tensor, adj: Tensor, log: bool = False) -> Tensor:
        x = F.relu(torch.sparse.mm(adj, self.lin1(x)))
        x = torch.sparse.mm(adj, self.lin2(x))
        return F.log_softmax(x, dim=1) if log else x


class GPS(torch.nn.Module):
    def __init__(self, attention: str = "multihead") -> None:
        super().__init__()
        self.node = Linear(5, 8)
        inner = [Linear(8, 8), ReLU(), Linear(8, 8)]
        self.convs = ModuleList(
            gnn.GPSConv(8, GINConv(torch.nn.Sequential(*inner)), heads=2, attn_type=attention)
            for _ in range(2)
        )
        self.mlp = torch.nn.Sequential(Linear(8, 4), ReLU(), Linear(4, 1))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.node(x)
        for conv in self.convs:
            x = conv(x, edge_index, batch)
        return self.mlp(gnn.global_add_pool(x, batch))


class Transformer(Base):
    """Attention over all nodes, whose own activation is inside a module of torch."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation=ReLU())
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.encoder(F.relu(self.conv1(x, edge_index)))


class DeeperGCN(torch.nn.Module):
    """The structure of PyG's examples/ogbn_proteins_deepgcn.py."""

    def __init__(self, block: str = "res+") -> None:
        super().__init__()
        self.node_encoder, self.layers = Linear(5, 8), ModuleList()
        for _ in range(3):
            conv = gnn.GENConv(
                8, 8, aggr="softmax", t=1.0, learn_t=True, num_layers=2, norm="layer"
            )
            self.layers.append(gnn.DeepGCNLayer(conv, LayerNorm(8), ReLU(inplace=True), block, 0.1))
        self.lin = Linear(8, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.layers[0].conv(self.node_encoder(x), edge_index)  # type: ignore[union-attr]
        for layer in self.layers[1:]:
            x = layer(x, edge_index)
        x = self.layers[0].act(self.layers[0].norm(x))  # type: ignore[union-attr]
        return self.lin(F.dropout(x, p=0.1, training=self.training))


class CoraGCN(torch.nn.Module):
    """The structure of PyG's examples/gcn.py."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(5, 8, normalize=True), GCNConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index, edge_weight).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index, edge_weight)


class LinkPrediction(Base):
    """The structure of PyG's examples/link_pred.py: no forward, but encode and decode."""

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


class MutagGIN(torch.nn.Module):
    """The structure of PyG's examples/mutag_gin.py."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = ModuleList()
        for width in (5, 8):
            self.convs.append(GINConv(MLP([width, 8, 8], norm=None), train_eps=True))
        self.mlp = MLP([8, 8, 3], norm=None, dropout=0.5)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.mlp(gnn.global_add_pool(x, batch))


class Nested(torch.nn.Module):
    """A model in a model, in which the outer one activates too."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.act, self.out = GCN(5, 8, 2), ReLU(), IsNone()
        self.out.conv1 = GCNConv(8, 8)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.out(self.act(self.encoder(x, edge_index)), edge_index, edge_weight)


class Layers(torch.nn.Sequential):
    """A class of its own for what torch has already."""


class Decoded(Base):
    """Layers of PyG's that copy themselves, and share an activation, and layers of a Sequential."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = MLP([8, 8, 8, 4], norm=None)
        self.layers = Layers(Linear(4, 4), ReLU(), Linear(4, 4))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layers(self.mlp(self.conv1(x, edge_index)))


class VariationalEncoder(Base):
    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        x = self.conv1(x, edge_index).relu()
        return self.conv3(x, edge_index), self.conv3(x, edge_index)


def infomax() -> torch.nn.Module:
    def summary(z: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return torch.sigmoid(z.mean(dim=0))

    def corruption(x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        return x[torch.randperm(x.size(0))], edge_index

    return gnn.DeepGraphInfomax(8, GCN(5, 8, 2), summary, corruption)


def sequential() -> torch.nn.Module:
    relu = ReLU()
    return gnn.Sequential(
        "x, edge_index, batch",
        [
            (torch.nn.Dropout(0.2), "x -> x"),
            (GCNConv(5, 8), "x, edge_index -> x1"),
            relu,
            (GATConv(8, 4, heads=3), "x1, edge_index -> x2"),
            torch.nn.Sequential(BatchNorm1d(12), torch.nn.Dropout(0.1)),
            torch.nn.LeakyReLU(0.1),
            (SAGEConv(12, 6), "x2, edge_index -> x3"),
            (torch.relu, "x3 -> x3"),
            (gnn.global_mean_pool, "x3, batch -> x"),
            Linear(6, 6),
            relu,
        ],
    )


def graphgym() -> torch.nn.Module:
    from torch_geometric.graphgym.config import cfg, set_cfg
    from torch_geometric.graphgym.models.gnn import GNN

    set_cfg(cfg)
    cfg.gnn.layers_pre_mp, cfg.gnn.layers_mp, cfg.gnn.layers_post_mp = 1, 2, 2
    cfg.gnn.dim_inner, cfg.gnn.head, cfg.gnn.dropout = 8, "graph", 0.1
    return GNN(5, 3)


def lightning() -> Any:
    """A LightningModule whose training step is where its activations are."""
    import pytorch_lightning

    class LightningGCN(pytorch_lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = GCNConv(5, 8), GCNConv(8, 4)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv2(F.relu(self.conv1(x, edge_index)), edge_index)

        def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
            return self(*batch).pow(2).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    return LightningGCN()


class Case(NamedTuple):
    """A model, two inputs that take different branches, and how many GReLUs it gets. A sparse
    adjacency, no batch vector, or edge weights take another branch in most of PyG's models."""

    build: Callable[[], torch.nn.Module]
    inputs: list[Any]
    grelus: int = 0
    example: Any = None  # else a graph is made up
    method: str = "forward"


WEIGHTED: list[Any] = [(X, EDGES), (X2, EDGES2, WEIGHT2)]
GRAPHS: list[Any] = [(data(y=torch.zeros(1)),), (data([9, 6], y=torch.zeros(1)),)]
GRAPHS[1][0].edge_index = to_torch_csr_tensor(torch.unique(GRAPHS[1][0].edge_index, dim=1))
ADJACENCIES: list[Any] = [
    (X, to_torch_coo_tensor(EDGES, WEIGHT, 30)),
    (X2, to_torch_coo_tensor(EDGES2, WEIGHT2, 21), True),
]
MOLECULES: list[Any] = [
    (X, BATCHED, torch.rand(90, 2), BATCH),
    (X2, PLAIN[1][1], torch.rand(PLAIN[1][1]._nnz(), 2), torch.zeros(21, dtype=torch.long)),
]


def shown(build: Callable[[], torch.nn.Module], inputs: list[Any], grelus: int) -> Case:
    """A case that needs an example, which is its first input."""
    return Case(build, inputs, grelus, example=inputs[0])


FLAGGED: list[Any] = [(X, EDGES), (X2, EDGES2, True)]
ONE_GRAPH = torch.zeros(21, dtype=torch.long)

CASES: dict[str, Case] = {
    "GCN": Case(lambda: GCN(5, 8, 3, 4, dropout=0.2), WEIGHTED, 2),
    "GraphSAGE": Case(lambda: gnn.GraphSAGE(5, 8, 3, 4, norm="layer_norm"), PLAIN, 2),
    "GAT": Case(lambda: gnn.GAT(5, 8, 3, 4, heads=2), PLAIN, 2),
    "GIN": Case(lambda: gnn.GIN(5, 8, 3, 4), PLAIN, 2),
    "PNA": Case(lambda: gnn.PNA(5, 8, 2, 4, **PNA_OPTIONS), PLAIN, 1),
    "EdgeCNN": Case(lambda: gnn.EdgeCNN(5, 8, 3, 4), PLAIN, 2),
    "GCN, JumpingKnowledge": Case(lambda: GCN(5, 8, 2, 4, jk="cat", act_first=True), WEIGHTED, 2),
    "GraphSAGE, JumpingKnowledge": Case(lambda: gnn.GraphSAGE(5, 8, 2, 4, jk="max"), PLAIN, 2),
    "GAT, JumpingKnowledge": Case(lambda: gnn.GAT(5, 8, 2, 4, jk="lstm"), PLAIN, 2),
    "GIN, JumpingKnowledge": Case(lambda: gnn.GIN(5, 8, 2, 4, jk="cat"), PLAIN, 2),
    "PNA, JumpingKnowledge": Case(lambda: gnn.PNA(5, 8, 2, 4, jk="last", **PNA_OPTIONS), PLAIN, 2),
    "EdgeCNN, JumpingKnowledge": Case(lambda: gnn.EdgeCNN(5, 8, 2, 4, jk="max"), PLAIN, 2),
    "GCN, a function as act": Case(lambda: GCN(5, 8, 3, 4, act=torch.relu), WEIGHTED, 2),
    "GCN, leaky, norm by graph": Case(
        lambda: GCN(5, 8, 3, 4, act="leaky_relu", norm="instance_norm"), PLAIN, 2
    ),
    "GPSConv": Case(GPS, BATCHES, 2),
    "GPSConv, performer": Case(lambda: GPS("performer"), BATCHES, 2),
    "TransformerEncoder": Case(Transformer, PLAIN, 1),
    "DeepGCNLayer": Case(DeeperGCN, PLAIN, 3),
    "GraphUNet": shown(lambda: gnn.GraphUNet(5, 8, 4, depth=2), BATCHES, 4),
    "GraphGym": shown(graphgym, GRAPHS, 3),
    "Sequential": Case(sequential, BATCHES, 3),
    "GAE": shown(lambda: gnn.GAE(GCN(5, 8, 2, 4)), PLAIN, 1),
    "VGAE": Case(
        lambda: gnn.VGAE(VariationalEncoder()), PLAIN, 1, lambda m: m.encode(X, EDGES), "encode"
    ),
    "DeepGraphInfomax": shown(infomax, PLAIN, 1),
    "AttentiveFP": shown(lambda: gnn.AttentiveFP(5, 8, 3, 2, 2, 2), MOLECULES, 3),
    "LightningModule": Case(lightning, PLAIN, 1),
    "edge_weight is None": Case(IsNone, WEIGHTED, 2),
    "if self.training": Case(IfTraining, PLAIN, 2),
    "any depth": shown(Depth, [(X, EDGES, 2), (X2, EDGES2, 4, True)], 2),
    "in place": Case(InPlace, PLAIN, 5),
    "laid out by columns": Case(
        Transposed, [(torch.randn(257, 5), random_graph(257, 1000)), PLAIN[1]], 2
    ),
    "one module, many places": Case(SharedModule, [BATCHES[0], (X2, EDGES2, ONE_GRAPH)], 3),
    "asks for its class": Case(AsksForItsClass, PLAIN, 2),
    "runs its children": Case(RunsItsChildren, FLAGGED, 3),
    "shared with a convolution": Case(SharedWithAConvolution, FLAGGED, 1, example=(X, EDGES, True)),
    "hidden in a list": Case(HiddenInAList, PLAIN, 2),
    "catches errors": Case(Catches, FLAGGED, 2),
    "helper functions": Case(Helpers, FLAGGED, 6),
    "nested models": Case(Nested, WEIGHTED, 4),
    "MLPs of nodes": Case(Decoded, PLAIN, 3),
    "pooling between layers": Case(Pooled, BATCHES, 3),
    "no MessagePassing": shown(WithoutMessagePassing, ADJACENCIES, 1),
    "examples/gcn.py": Case(CoraGCN, WEIGHTED, 1),
    "examples/ogbn_proteins_deepgcn.py": Case(lambda: DeeperGCN("res"), PLAIN, 3),
    "examples/mutag_gin.py": Case(MutagGIN, BATCHES, 2),
}
