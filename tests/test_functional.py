"""What the module does not ask of the reference: its defaults, and shapes that broadcast."""

import inspect

import pytest
import torch

from graphrelu import GReLU, functional
from graphrelu.calibration import DEFAULT, Calibration
from tests.helpers import assert_close, opened, random_graph, reference


def test_defaults_are_those_of_the_module() -> None:
    """What is left out means the same in both."""

    def defaults(function: object) -> dict[str, object]:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
        return {p.name: p.default for p in parameters if p.default is not p.empty}

    module, reference = defaults(GReLU), defaults(functional.grelu)
    # None stands for the default constants, which the module hands on.
    assert GReLU(2).calibration == reference.pop("calibration")
    shared = module.keys() & reference.keys()
    assert len(shared) == 9
    assert {name: reference[name] for name in shared} == {name: module[name] for name in shared}
    diffuse = defaults(functional.diffuse)
    assert {name: module[name] for name in module.keys() & diffuse.keys()} == {
        name: diffuse[name] for name in ("alpha", "steps", "diffusion", "add_self_loops")
    }


@pytest.mark.parametrize("mode", functional.MODES)
def test_log_sum_exp(mode: str) -> None:
    temperature = 1.0 if mode == "paper" else DEFAULT.temperature
    logits = torch.randn(7, 3, dtype=torch.double)
    out = functional.log_sum_exp(logits, mode)
    assert out.shape == (1, 3)
    torch.testing.assert_close(out, (logits / temperature).exp().sum(0, keepdim=True).log())


def test_what_is_left_out_is_the_module() -> None:
    act = opened(GReLU(4)).double()
    edge_index = random_graph(12, 30)
    x = torch.randn(12, 4, dtype=torch.double)
    expected = act(x, edge_index)
    out, alpha, beta = functional.grelu(x, edge_index, act.channel_mlp, act.node_mlp, act.gate)
    assert_close(out, expected)
    slopes, intercepts = act.coefficients(x, edge_index)
    assert_close(alpha, slopes)
    assert_close(beta, intercepts)

    e = functional.diffuse(x, edge_index)
    mean = functional.graph_mean(e)
    assert_close(functional.diffuse(x, edge_index, alpha=0.1, steps=10), e)
    both = functional.channel_parameters(mean, act.channel_mlp, 2)
    assert_close(functional.centred(both[0]).mean(dim=-1), torch.zeros(1, 2).double())
    assert_close(both[1], functional.channel_parameters(mean, act.channel_mlp, 2, bias=True)[1])
    assert bool((both[1] != 0).all())
    assert functional.base_slopes(3, "calibrated") == (1.0, 0.0, 0.0)
    row_mass = functional.diffuse(torch.ones(12, 1, dtype=torch.double), edge_index)
    logits = act.node_mlp(functional.surroundings(e, row_mass))
    rho = functional.smoothness(act.node_mlp(x), logits)
    logits, batch = functional.smoothed(logits, rho), torch.zeros(12).long()
    assert_close(functional.smoothed(act.node_mlp(x), rho, batch), rho * act.node_mlp(x))
    gamma = functional.calibrated_node_parameters(logits, batch)
    assert_close(gamma, act.gamma(x, edge_index))


def test_a_tie_goes_to_the_first_segment() -> None:
    x = torch.zeros(1, 1, requires_grad=True)
    slopes = torch.tensor([[[2.0], [3.0], [5.0]]])
    functional.piecewise_max(x, slopes, torch.zeros(1, 3, 1)).sum().backward()
    assert x.grad.item() == 2.0


def test_printed_form_has_no_constants() -> None:
    torch.manual_seed(0)
    plain = GReLU(4, mode="paper").double()
    other = GReLU(4, mode="paper", calibration=Calibration(channel_scale=3.0)).double()
    other.load_state_dict(plain.state_dict())
    edge_index, x = random_graph(12, 30), torch.randn(12, 4, dtype=torch.double)
    expected = reference(plain, x, edge_index)[0]
    assert_close(other(x, edge_index), expected)
    assert_close(reference(other, x, edge_index)[0], expected)
