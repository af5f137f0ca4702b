import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap
from torch_geometric.utils import remove_self_loops, to_torch_csr_tensor

from graphrelu import functional
from graphrelu.lab.models.backbones import GNN
from graphrelu.lab.models.undecomposed import Undecomposed
from tests.helpers import assert_close, batch_of_graphs, random_graph


def opened(channels: int, K: int = 2) -> Undecomposed:
    """In double precision, and with parameters that have left zero."""
    return moved(Undecomposed(channels, K=K)).double()


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
    with pytest.raises(TypeError, match=r"^channels must be an integer, got 2\.5\.$"):
        Undecomposed(2.5)  # type: ignore[arg-type]


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
    act, x = opened(4, K), torch.randn(8, 4, dtype=torch.double)
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


def test_permutation_equivariance() -> None:
    act, x, edge_index = opened(4), torch.randn(10, 4, dtype=torch.double), random_graph(10, 40)
    permutation = torch.randperm(10)
    place = torch.argsort(permutation)
    assert_close(act(x[permutation], place[edge_index]), act(x, edge_index)[permutation])


def test_graphs_of_a_batch_are_apart() -> None:
    edge_index, batch = batch_of_graphs([4, 7, 3])
    act, x = opened(5), torch.randn(14, 5, dtype=torch.double)
    out = act(x, edge_index, None, batch, 3)
    for graph in range(3):
        nodes = (batch == graph).nonzero().view(-1)
        inside = batch[edge_index[0]] == graph
        assert_close(act(x[nodes], edge_index[:, inside] - nodes[0]), out[nodes])


def test_gradients() -> None:
    act, x = opened(3, K=3), torch.randn(6, 3, dtype=torch.double, requires_grad=True)
    edge_index = random_graph(6, 15)
    names, values = zip(*act.named_parameters(), strict=True)

    def forward(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return functional_call(act, dict(zip(names, values, strict=True)), (x, edge_index))

    assert torch.autograd.gradcheck(forward, (x, *values))


def test_alone_as_in_a_batch_of_models() -> None:
    acts = [opened(4) for _ in range(3)]
    x, edge_index = torch.randn(3, 9, 4, dtype=torch.double), random_graph(9, 30)
    parameters, _ = stack_module_state(acts)

    def forward(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(acts[0], parameters, (x, edge_index))

    together = vmap(forward)(parameters, x)
    for act, own, out in zip(acts, x, together, strict=True):
        assert_close(act(own, edge_index), out)


def test_half_precision_and_autocast() -> None:
    act = opened(4).float()
    x, edge_index = torch.randn(9, 4), random_graph(9, 30)
    expected = act(x, edge_index)
    assert act(x.bfloat16(), edge_index).dtype == torch.bfloat16
    torch.testing.assert_close(act(x.bfloat16(), edge_index).float(), expected, rtol=0.1, atol=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(act(x, edge_index), expected)


def test_bad_input() -> None:
    act, edge_index = Undecomposed(4), random_graph(9, 30)
    with pytest.raises(ValueError, match=r"^x must have 4 channels, got 5\.$"):
        act(torch.randn(9, 5), edge_index)
    with pytest.raises(ValueError, match="edge_index must hold indices between 0 and 3"):
        act(torch.randn(4, 4), edge_index + 4)


def test_by_name() -> None:
    model = GNN("gcn", 5, 4, 3, activation="undecomposed", activation_options={"K": 3})
    assert model.acts[0].K == 3
    x, edge_index = torch.randn(9, 5), random_graph(9, 30)
    moved(model.acts[0])
    model.eval()
    torch.testing.assert_close(model(model.prepare(x, edge_index)), model(x, edge_index))
