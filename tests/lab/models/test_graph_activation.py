"""The properties that all activations with a graph share, and the undecomposed hyperfunction."""

import pytest
import torch
from torch_geometric.utils import remove_self_loops, to_torch_csr_tensor

from graphrelu import functional
from graphrelu.lab.models.digraf import DiGRAF
from graphrelu.lab.models.graph_activation import GraphActivation, Undecomposed
from tests.helpers import assert_close, batch_of_graphs, random_graph

RIVALS = (DiGRAF, Undecomposed)


@pytest.mark.parametrize("kind", RIVALS)
def test_symmetries(kind: type[GraphActivation]) -> None:
    """Nodes in another order, and graphs of a batch that do not see each other."""
    edge_index, batch = batch_of_graphs([4, 7, 3])
    act, x = kind(5).double(), torch.randn(14, 5, dtype=torch.double)
    for parameter in act.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    permutation = torch.randperm(14)
    place = torch.argsort(permutation)
    assert_close(act(x[permutation], place[edge_index]), act(x, edge_index)[permutation])
    out = act(x, edge_index, None, batch, 3)
    for graph in range(3):
        nodes = (batch == graph).nonzero().view(-1)
        inside = batch[edge_index[0]] == graph
        assert_close(act(x[nodes], edge_index[:, inside] - nodes[0]), out[nodes])


@pytest.mark.parametrize("kind", RIVALS)
def test_no_nodes_and_bad_input(kind: type[GraphActivation]) -> None:
    act, edge_index = kind(4), random_graph(9, 30)
    assert act(torch.empty(0, 4), torch.empty(2, 0, dtype=torch.long)).shape == (0, 4)
    with pytest.raises(TypeError, match=r"^channels must be an integer, got 2\.5\.$"):
        kind(2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^x must have 4 channels, got 5\.$"):
        act(torch.randn(9, 5), edge_index)
    with pytest.raises(ValueError, match="edge_index must hold indices between 0 and 3"):
        act(torch.randn(4, 4), edge_index + 4)


def test_the_undecomposed() -> None:
    """It starts as ReLU. PyG's own convolution, and the calibrated form around it; also of a sparse
    adjacency."""
    act, x = Undecomposed(4).double(), torch.randn(8, 4, dtype=torch.double)
    assert sum(p.numel() for p in act.parameters()) == 4 * 4 * (4 + 1)
    edge_index, _ = remove_self_loops(random_graph(8, 30))
    assert torch.equal(act(x, edge_index), x.relu())
    for parameter in act.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    weight = torch.rand(edge_index.size(1), dtype=torch.double)
    logits = functional.Form().scale * act.conv(x, edge_index, weight)
    slopes, intercepts = torch.tanh(logits).view(8, 2, 2, 4).unbind(1)
    slopes = torch.tensor([1.0, 0.0]).double().view(1, 2, 1) + slopes
    out = act(x, edge_index, weight)
    assert_close(out, (slopes * x.unsqueeze(1) + intercepts).amax(dim=1))
    adjacency = to_torch_csr_tensor(edge_index.flip(0), weight, size=(8, 8))
    assert_close(act(x, adjacency), out)
