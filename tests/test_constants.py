"""The constants of the calibrated form, other than the default ones."""

import math

import pytest
import torch

from graphrelu import GReLU
from graphrelu.functional import MODES
from graphrelu.grelu import DiagonalMap, HyperMLP
from tests import oracle
from tests.helpers import (
    FULL,
    OTHER,
    assert_close,
    batch_of_graphs,
    gradients,
    opened,
    random_graph,
    reference,
)

CONSTANTS = [
    {"scale": 1.0},
    {"scale": 20.0},
    {"temperature": 0.5},
    {"temperature": 4.0},
    {"gamma_max": 0.95, "temperature": 0.5},
    {"gamma_max": math.inf, "temperature": 0.5},
    {"diagonal": False},
    OTHER,
    FULL,
    {"hidden": 4, **OTHER},
    {"channel_wise": False, **OTHER},
    {"node_wise": False, "diagonal": False, "scale": 1.0},
]


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("constants", CONSTANTS, ids=str)
def test_oracle(constants: dict, K: int) -> None:
    """Module and reference agree with nested loops, gradients too."""
    edge_index, batch = batch_of_graphs([4, 2])
    act = opened(GReLU(3, K=K, steps=3, **constants)).double()
    x = torch.randn(6, 3, dtype=torch.double, requires_grad=True)
    inputs = [x, *act.parameters()]
    weight = torch.ones(edge_index.size(1))
    expected = oracle.grelu(act, x, edge_index, weight, batch.tolist())
    expected_grads = gradients(expected, inputs)
    if act.hidden is None:  # whose layer may have no active unit
        assert all(bool(grad.any()) for grad in expected_grads)
    graph = {"batch": batch, "batch_size": 2}
    for out in (act(x, edge_index, **graph), reference(act, x, edge_index, **graph)[0]):
        assert_close(out, expected)
        for grad, expected_grad in zip(gradients(out, inputs), expected_grads, strict=True):
            assert_close(grad, expected_grad)


@pytest.mark.parametrize("constants", CONSTANTS, ids=str)
def test_every_constant_matters(constants: dict) -> None:
    """Else the comparison with the oracle would show nothing."""
    x, edge_index = 3 * torch.randn(30, 3), random_graph(30, 60)
    act = opened(GReLU(3, **constants))
    for name, parameter in act.named_parameters():
        parameter.data *= 4.0 if name.startswith("node_mlp") else 0.3
    structure = ("diagonal", "hidden", "channel_wise", "node_wise")
    for name in [name for name in constants if name not in structure]:
        other = GReLU(3, **{key: value for key, value in constants.items() if key != name})
        other.load_state_dict(act.state_dict())
        assert not torch.allclose(act(x, edge_index), other(x, edge_index), atol=1e-3), name


@pytest.mark.parametrize("constants", CONSTANTS, ids=str)
def test_fresh_module_is_relu_and_learns(constants: dict) -> None:
    edge_index = random_graph(20, 40, undirected=True)
    act = GReLU(4, **constants)
    x = torch.randn(20, 4)
    out = act(x, edge_index)
    assert torch.equal(out, x.relu())
    out.square().sum().backward()
    assert sum(float(p.grad.abs().sum()) for p in act.parameters()) > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("constants", CONSTANTS, ids=str)
def test_running_statistics(constants: dict, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one batch the running averages are its own: evaluation gives what training gave."""
    edge_index = random_graph(20, 40, undirected=True)
    act = GReLU(4, mode=mode, **constants, track_running_stats=True)
    for parameter in act.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(20, 4)
    expected = act.train()(x, edge_index)
    assert_close(act.eval()(x, edge_index), expected, 1e-5)
    plain = GReLU(4, mode=mode, **constants)
    plain.load_state_dict(act.state_dict(), strict=False)
    assert_close(plain(x, edge_index), expected, 1e-5)
    monkeypatch.setenv("GRAPHRELU_BACKEND", "reference")
    assert_close(act(x, edge_index), expected, 1e-5)


@pytest.mark.parametrize("channel_wise", [True, False])
def test_node_weights_are_one_on_average_and_bounded(channel_wise: bool) -> None:
    edge_index, batch = batch_of_graphs([40, 20])
    x = 3 * torch.randn(60, 4, dtype=torch.double)
    act = GReLU(4, K=3, channel_wise=channel_wise, temperature=0.5, gamma_max=math.inf).double()
    columns = 1 if channel_wise else 3
    for graph in (None, batch):
        gamma = act.gamma(x, edge_index, batch=graph)
        assert gamma.shape == (60, columns)
        parts = [gamma] if graph is None else [gamma[:40], gamma[40:]]
        for part in parts:
            assert_close(part.mean(dim=0), torch.ones(columns, dtype=torch.double))
        act.gamma_max = 1.5
        assert bool((gamma > 1.5).any())
        assert_close(act.gamma(x, edge_index, batch=graph), gamma.clamp(max=1.5))
        act.gamma_max = math.inf


def test_temperature_divides_the_logits() -> None:
    """Half the temperature is twice the node MLP's weight."""
    x, edge_index = torch.randn(20, 4), random_graph(20, 40)
    act, other = GReLU(4, temperature=0.5), GReLU(4, temperature=1.0)
    other.node_mlp.first.weight.data = 2 * act.node_mlp.first.weight.data
    assert_close(act.gamma(x, edge_index), other.gamma(x, edge_index), 1e-5)


def test_scale_multiplies_what_the_tanh_is_taken_of() -> None:
    x, edge_index = torch.randn(20, 4), random_graph(20, 40)
    for channel_wise in (True, False):
        act = opened(GReLU(4, channel_wise=channel_wise, scale=0.5), 0.2)
        other = GReLU(4, channel_wise=channel_wise, scale=2.0)
        other.load_state_dict(act.state_dict())
        for name, parameter in other.named_parameters():
            if not name.startswith("node_mlp"):
                parameter.data /= 4
        assert_close(act(x, edge_index), other(x, edge_index), 1e-5)


def test_diagonal_by_default_where_it_can_be() -> None:
    for options in ({}, {"diagonal": True}, {"bias": False}):
        assert isinstance(GReLU(4, **options).channel_mlp, DiagonalMap)
    for options in ({"diagonal": False}, {"hidden": 3}, {"mode": "paper"}):
        act = GReLU(4, **options)
        assert isinstance(act.channel_mlp, HyperMLP)
        assert not act.diagonal


def test_diagonal_map_is_a_full_one_with_zeros_elsewhere() -> None:
    x, edge_index = torch.randn(20, 4, dtype=torch.double), random_graph(20, 40)
    act = opened(GReLU(4, K=3)).double()
    full = GReLU(4, K=3, diagonal=False).double()
    full.node_mlp.load_state_dict(act.node_mlp.state_dict())
    rows = act.channel_mlp.weight.size(0)
    weight = act.channel_mlp.weight.detach().unsqueeze(-1) * torch.eye(4, dtype=torch.double)
    full.channel_mlp.first.weight.data = weight.view(4 * rows, 4)
    full.channel_mlp.first.bias.data = act.channel_mlp.bias.detach().flatten()
    assert_close(full(x, edge_index), act(x, edge_index))


def test_each_channel_of_the_diagonal_map_sees_its_own_mean() -> None:
    """Without node block, another channel's features change nothing."""
    act = opened(GReLU(4, node_wise=False))
    x, edge_index = torch.randn(20, 4), random_graph(20, 40)
    before = act(x, edge_index)
    x[:, 1] += 1
    after = act(x, edge_index)
    assert torch.equal(after[:, [0, 2, 3]], before[:, [0, 2, 3]])
    slopes = act.coefficients(x, edge_index)[0][0]
    x[:, 1] -= 1
    assert not torch.allclose(act.coefficients(x, edge_index)[0][0, :, 1], slopes[:, 1])
