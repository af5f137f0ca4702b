"""What the module does not ask of the reference: its defaults, and shapes that broadcast."""

import inspect

import pytest
import torch

from graphrelu import GReLU, functional
from graphrelu.functional import Form
from tests.helpers import OTHER, assert_close, opened, random_graph, reference


def test_defaults_are_those_of_the_module() -> None:
    """What is left out means the same in both."""

    def defaults(function: object) -> dict[str, object]:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
        return {p.name: p.default for p in parameters if p.default is not p.empty}

    module = defaults(GReLU)
    form = Form._field_defaults
    assert form == {name: module[name] for name in form}
    assert GReLU(2)._form == Form() == defaults(functional.grelu)["form"]
    names = ("alpha", "steps", "diffusion", "add_self_loops")
    for function in (functional.grelu, functional.diffuse):
        assert {name: defaults(function)[name] for name in names} == {n: module[n] for n in names}
    assert defaults(functional.grelu)["topology"] == module["topology"]


def test_form_is_that_of_the_module() -> None:
    options = {"K": 3, "negative_slope": 0.2, "dropout": 0.3, "bias": False, **OTHER}
    assert GReLU(4, **options)._form == Form(**options)
    assert GReLU(4, channel_wise=False)._form == Form(bias=False)
    assert GReLU(4, mode="paper")._form == Form(mode="paper")


def test_base_slopes() -> None:
    assert Form(K=1).base_slopes == (1.0,)
    assert Form(K=3).base_slopes == (1.0, 0.0, 0.0)
    assert Form(K=3, negative_slope=0.2).base_slopes == (1.0, 0.2, 0.2)
    assert Form(K=3, mode="paper").base_slopes == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("mode", functional.MODES)
def test_log_sum_exp(mode: str) -> None:
    temperature = 1.0 if mode == "paper" else 2.5
    logits = torch.randn(7, 3, dtype=torch.double)
    out = functional.log_sum_exp(logits, Form(mode=mode, temperature=2.5))
    assert out.shape == (1, 3)
    torch.testing.assert_close(out, (logits / temperature).exp().sum(0, keepdim=True).log())


def test_what_is_left_out_is_the_module() -> None:
    act = opened(GReLU(4)).double()
    edge_index = random_graph(12, 30)
    x = torch.randn(12, 4, dtype=torch.double)
    expected = act(x, edge_index)
    out, alpha, beta = functional.grelu(x, edge_index, act.channel_mlp, act.node_mlp)
    assert_close(out, expected)
    slopes, intercepts = act.coefficients(x, edge_index)
    assert_close(alpha, slopes)
    assert_close(beta, intercepts)

    e = functional.diffuse(x, edge_index)
    assert_close(functional.diffuse(x, edge_index, alpha=0.1, steps=10), e)
    batch = torch.zeros(12, dtype=torch.long)
    mean = functional.graph_mean(e)
    assert_close(functional.graph_mean(e, batch), mean)
    logits = act.channel_mlp(mean)
    of_channels = functional.channel_parameters(logits, 4, Form())
    assert of_channels[0].shape == of_channels[1].shape == (1, 2, 4)
    assert bool((of_channels[1] != 0).all())
    without = functional.channel_parameters(logits[:, :8], 4, Form(bias=False))
    assert_close(without[0], of_channels[0])
    assert not bool(without[1].any())
    gamma = functional.calibrated_node_parameters(act.node_mlp(e), Form(), batch)
    assert_close(gamma, act.gamma(x, edge_index))
    a, b = functional.coefficients(gamma, *of_channels, Form().base_slopes)
    assert_close(a, slopes)
    assert_close(b, intercepts)


def test_hyperfunction_draws_and_updates_only_where_it_is_told() -> None:
    logits, calls = torch.randn(50, 1), []

    def statistics(mean, logits, num_nodes, form, update):  # type: ignore[no-untyped-def]
        calls.append((num_nodes, update))
        return mean, functional.log_sum_exp(logits, form) - torch.tensor(50.0).log()

    act, form = opened(GReLU(4)), Form(dropout=0.5)
    arguments = torch.randn(1, 4), logits, act.channel_mlp, None, (50, 4), form, None, 1
    gamma, *_ = functional.hyperfunction(*arguments)
    assert bool((gamma > 0).all())
    with_statistics, *_ = functional.hyperfunction(*arguments, statistics)
    assert_close(with_statistics, gamma, 1e-5)
    dropped, *_ = functional.hyperfunction(*arguments, statistics, True, True)
    assert calls == [(50, False), (50, True)]
    assert 10 < int((dropped == 0).sum()) < 40


def test_a_tie_goes_to_the_last_segment() -> None:
    for values in ([2.0, 3.0, 5.0], [5.0, 3.0, 2.0]):
        x = torch.zeros(1, 1, requires_grad=True)
        slopes = torch.tensor(values).view(1, 3, 1)
        functional.piecewise_max(x, slopes, torch.zeros(1, 3, 1)).sum().backward()
        assert x.grad.item() == values[-1]


def test_printed_form_has_no_constants() -> None:
    torch.manual_seed(0)
    plain = GReLU(4, mode="paper").double()
    other = GReLU(4, mode="paper", **OTHER).double()
    other.load_state_dict(plain.state_dict())
    edge_index, x = random_graph(12, 30), torch.randn(12, 4, dtype=torch.double)
    expected = reference(plain, x, edge_index)[0]
    assert_close(other(x, edge_index), expected)
    assert_close(reference(other, x, edge_index)[0], expected)
