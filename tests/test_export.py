"""A trained model, exported for inference; and a model of plain torch around the activation."""

from pathlib import Path

import torch
from torch import Tensor
from torch.export import Dim
from torch_geometric.nn import GCNConv

from graphrelu import GReLU
from tests.helpers import assert_close, opened, random_graph


class Net(torch.nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(5, 8), GCNConv(8, 3)
        self.act = opened(GReLU(8, **options))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.act(self.conv1(x, edge_index), edge_index), edge_index)


def test_export(tmp_path: Path) -> None:
    """For graphs of any size, by way of a file."""
    net = Net().eval()
    sizes = {"x": {0: Dim("nodes", min=2)}, "edge_index": {1: Dim("edges", min=2)}}
    arguments = (torch.randn(11, 5), random_graph(11, 40))
    with torch.no_grad():
        program = torch.export.export(net, arguments, dynamic_shapes=sizes)
        torch.export.save(program, tmp_path / "model.pt2")
        exported = torch.export.load(tmp_path / "model.pt2").module()
        for num_nodes, num_edges in ((11, 40), (4, 7), (50, 200)):
            x, edge_index = torch.randn(num_nodes, 5), random_graph(num_nodes, num_edges)
            assert_close(exported(x, edge_index), net(x, edge_index), 1e-5)


def test_a_matrix_with_duplicates_stays_as_it_is() -> None:
    """One that is not coalesced yet has the sums of its entries."""
    index = torch.tensor([[0, 1, 1, 2], [1, 2, 2, 0]])
    adjacency = torch.sparse_coo_tensor(index, torch.ones(4), (3, 3))
    act, x = opened(GReLU(4)), torch.randn(3, 4)
    assert_close(act(x, adjacency), act(x, adjacency.to_dense().to_sparse()), 1e-6)
    assert not adjacency.is_coalesced()
