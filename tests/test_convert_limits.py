"""Where converting has to guess, or to refuse: names of arguments, forwards that have two modes."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_torch_csr_tensor

from graphrelu import convert
from tests.helpers import opened, random_graph
from tests.test_convert import assert_same_output, grelus

X, EDGES = torch.randn(30, 5, generator=torch.Generator().manual_seed(1)), random_graph(30, 90)


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(5, 8), GCNConv(8, 4)
        self.act = torch.nn.ReLU()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.act(self.conv1(x, edge_index)), edge_index)


class OtherStepInTraining(Layers):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = torch.tanh(x) if self.training else torch.sigmoid(x)
        return F.relu(self.conv1(x, edge_index))


class OtherScaleInTraining(Layers):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return F.relu(self.conv1(x * (2 if self.training else 3), edge_index))


class OtherName(Layers):
    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        return super().forward(x, graph)


def test_data_object_for_a_model_of_tensors() -> None:
    """Its parts become the arguments of the same names; what else it holds is left out."""
    model = Layers()
    converted = convert(model, example=Data(x=X, edge_index=EDGES, y=torch.zeros(30)))
    assert [act.channels for act in grelus(converted)] == [8]
    assert_same_output(model, converted, X, EDGES)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (OtherStepInTraining, "its forward takes other steps in training"),
        (OtherScaleInTraining, "its forward uses .*2.* in training and .*3.* else"),
    ],
)
def test_forward_that_depends_on_the_mode(kind: type[Layers], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        convert(kind(), example=(X, EDGES))


def test_sparse_adjacency_by_another_name() -> None:
    model = OtherName()
    converted = convert(model, example=(X, EDGES))
    adj_t = to_torch_csr_tensor(EDGES.unique(dim=1).flip(0), size=30)
    assert_same_output(model, converted, X, adj_t)
    (act,) = grelus(converted)
    opened(act)
    hidden = converted.conv1(X, adj_t)
    expected = converted.conv2(act(hidden, adj_t), adj_t)
    torch.testing.assert_close(converted(X, adj_t), expected)
