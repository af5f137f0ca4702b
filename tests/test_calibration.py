"""The constants of the calibrated form, other than the default ones."""

from dataclasses import replace

import pytest
import torch

from graphrelu import GReLU
from graphrelu.calibration import Calibration
from graphrelu.functional import MODES
from tests import oracle
from tests.helpers import (
    PLAIN,
    SMOOTH,
    assert_close,
    batch_of_graphs,
    gradients,
    opened,
    random_graph,
    reference,
)

CALIBRATIONS = [
    Calibration(temperature=2.0),
    Calibration(gamma_scale=0.9, gamma_max=0.95),
    Calibration(rest_scale=0.25),
    Calibration(rest_scale=0.0, intercept_scale=0.0),
    Calibration(intercept_scale=2.0),
    Calibration(gate_scale=3.0),
    Calibration(gate_scale=2.0, gate_max=0.7),
    Calibration(channel_scale=3.0),
    Calibration(gated=False, gate_scale=0.5),
    Calibration(node_weights="sigmoid", temperature=1.5),
    PLAIN,
    SMOOTH,
    Calibration(smooth=2, temperature=0.5),
    Calibration(rest_smooth=True, rest_scale=3.0, intercept_scale=1.5),
    Calibration(smooth=2, rest_smooth=True, rest_scale=1.0),
    Calibration(first_smooth=True),
    Calibration(smooth=2, first_smooth=True, centred=False),
    Calibration(centred=True),
    Calibration(centred=True, gated=False),
    Calibration(smooth=1, node_weights="sigmoid", temperature=0.5),
]


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("calibration", CALIBRATIONS, ids=str)
def test_oracle(calibration: Calibration, K: int) -> None:
    edge_index, batch = batch_of_graphs([4, 2])
    act = opened(GReLU(3, K=K, steps=3, calibration=calibration)).double()
    for parameter in act.parameters():
        parameter.data = 3 * torch.randn_like(parameter)
    x = torch.randn(6, 3, dtype=torch.double, requires_grad=True)
    inputs = [x, *act.parameters()]
    weight = torch.ones(edge_index.size(1))
    expected = oracle.grelu(act, x, edge_index, weight, batch.tolist())
    expected_grads = gradients(expected, inputs)
    graph = {"batch": batch, "batch_size": 2}
    for out in (act(x, edge_index, **graph), reference(act, x, edge_index, **graph)[0]):
        assert_close(out, expected)
        for grad, expected_grad in zip(gradients(out, inputs), expected_grads, strict=True):
            assert_close(grad, expected_grad)


@pytest.mark.parametrize("calibration", CALIBRATIONS, ids=str)
def test_gradcheck(calibration: Calibration) -> None:
    edge_index, batch = batch_of_graphs([4, 3])
    # What no gradient is to go through, differences would see: the oracle's is the measure there.
    calibration = replace(calibration, rest_smooth=False, first_smooth=False)
    act = opened(GReLU(3, calibration=calibration, hidden=4)).double()
    names = [name for name, _ in act.named_parameters()]

    def run(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        named = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(act, named, (x, edge_index, None, batch))

    inputs = (torch.randn(7, 3, dtype=torch.double, requires_grad=True), *act.parameters())
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize("calibration", CALIBRATIONS, ids=str)
def test_fresh_module_is_relu_and_learns(calibration: Calibration) -> None:
    edge_index = random_graph(20, 40, undirected=True)
    act = GReLU(4, calibration=calibration)
    x = torch.randn(20, 4)
    out = act(x, edge_index)
    assert torch.equal(out, x.relu())
    out.square().sum().backward()
    assert sum(float(p.grad.abs().sum()) for p in act.parameters()) > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("calibration", CALIBRATIONS, ids=str)
def test_running_statistics(
    calibration: Calibration, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one batch the running averages are its own: evaluation gives what training gave."""
    edge_index = random_graph(20, 40, undirected=True)
    act = opened(GReLU(4, mode=mode, calibration=calibration, track_running_stats=True))
    for parameter in act.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(20, 4)
    expected = act.train()(x, edge_index)
    assert_close(act.eval()(x, edge_index), expected, 1e-5)
    plain = GReLU(4, mode=mode, calibration=calibration)
    plain.load_state_dict(act.state_dict(), strict=False)
    assert_close(plain(x, edge_index), expected, 1e-5)
    monkeypatch.setenv("GRAPHRELU_BACKEND", "reference")
    assert_close(act(x, edge_index), expected, 1e-5)


def test_node_weights_by_a_sigmoid_need_no_statistics_of_their_own() -> None:
    calibration = Calibration(node_weights="sigmoid", smooth=0)
    act = GReLU(4, calibration=calibration, channel_wise=False, track_running_stats=True)
    assert act.statistics is None
    act = GReLU(4, calibration=calibration, track_running_stats=True)
    assert act.statistics is not None
    assert act.statistics.running_log_normaliser is None
    assert act.statistics.running_smoothness is None
    smooth = replace(calibration, smooth=2)
    act = GReLU(4, calibration=smooth, channel_wise=False, track_running_stats=True)
    assert act.statistics is not None
    assert act.statistics.running_smoothness.shape == (1, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature must be positive, got 0.0"),
        ({"gamma_scale": -1.0}, "gamma_scale must be positive"),
        ({"gate_max": 0.0}, "gate_max must be positive, got 0.0"),
        ({"gate_scale": float("nan")}, "gate_scale must be positive"),
        ({"rest_scale": -0.1}, "rest_scale must be zero or more, got -0.1"),
        (
            {"first_smooth": True, "rest_smooth": False},
            "first_smooth must be False where rest_smooth is, got True",
        ),
        ({"smooth": 3}, "smooth must be 0, 1 or 2, got 3"),
        ({"node_weights": "hard"}, "node_weights must be one of softmax, sigmoid, got 'hard'"),
    ],
)
def test_errors(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Calibration(**options)


def test_without_gate_or_channel_block_nothing_starts_at_zero() -> None:
    with pytest.raises(ValueError, match="calibration must have a gate with channel_wise=False"):
        GReLU(4, channel_wise=False, calibration=Calibration(gated=False))
