import pytest
import torch
from torch_geometric.utils import remove_self_loops, to_torch_csr_tensor

from graphrelu import functional
from graphrelu.lab.models.undecomposed import Undecomposed
from tests.helpers import assert_close, random_graph


def moved(act: Undecomposed) -> Undecomposed:
    for parameter in act.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return act


def test_parameters() -> None:
    act = Undecomposed(6, K=3)
    assert str(act) == "Undecomposed(6, K=3)"
    assert sum(p.numel() for p in act.parameters()) == 2 * 3 * 6 * (6 + 1)
    with pytest.raises(ValueError, match=r"^K must be at least 1, got 0\.$"):
        Undecomposed(6, K=0)


def test_fresh_module_is_relu() -> None:
    act, x, edge_index = Undecomposed(5, K=4), torch.randn(9, 5), random_graph(9, 20)
    x[0, 0] = 0.0
    assert torch.equal(act(x, edge_index), x.relu())
    moved(act)
    assert not torch.equal(act(x, edge_index), x.relu())
    act.reset_parameters()
    assert torch.equal(act(x, edge_index), x.relu())


@pytest.mark.parametrize("K", [1, 2, 5])
def test_formula(K: int) -> None:
    """PyG's own convolution, and the calibrated form around it; also of a sparse adjacency."""
    act, x = moved(Undecomposed(4, K=K)).double(), torch.randn(8, 4, dtype=torch.double)
    edge_index, _ = remove_self_loops(random_graph(8, 30))
    weight = torch.rand(edge_index.size(1), dtype=torch.double)
    logits = functional.Form().scale * act.conv(x, edge_index, weight)
    slopes, intercepts = torch.tanh(logits).view(8, 2, K, 4).unbind(1)
    slopes = torch.eye(K).double()[0].view(1, K, 1) + slopes
    out = act(x, edge_index, weight)
    assert_close(out, functional.piecewise_max(x, slopes, intercepts))
    assert_close(out, (slopes * x.unsqueeze(1) + intercepts).amax(dim=1))
    adjacency = to_torch_csr_tensor(edge_index.flip(0), weight, size=(8, 8))
    assert_close(act(x, adjacency), out)
