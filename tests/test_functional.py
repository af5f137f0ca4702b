"""What the module does not ask of the reference: its defaults, and shapes that broadcast."""

import inspect

import pytest
import torch

from graphrelu import GReLU, functional
from graphrelu.functional import Form
from tests.helpers import OnGPU, assert_close, form_of, opened, random_graph, reference


def defaults(function: object) -> dict[str, object]:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def test_defaults_are_those_of_the_module() -> None:
    """What is left out means the same in both."""
    module, form = {**defaults(GReLU), "gamma_max": GReLU.gamma_max}, Form._field_defaults
    assert form == {name: module[name] for name in form}
    assert form_of(GReLU(2)) == Form()
    act = opened(GReLU(4)).double()
    edge_index, x = random_graph(12, 30), torch.randn(12, 4, dtype=torch.double)
    assert_close(
        reference(act, x, edge_index), (act(x, edge_index), *act.coefficients(x, edge_index))
    )


def test_a_gpu_has_other_sums_and_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "LONG_COLUMN", 10)
    batch = torch.arange(3).repeat_interleave(torch.tensor([4, 0, 8]))
    x = torch.randn(12, 2, dtype=torch.double)
    there = x.as_subclass(OnGPU)
    for function in (
        lambda x: functional.graph_sum(x, batch, 3),
        lambda x: functional.node_parameters(x),  # a column that is long for a GPU
        lambda x: functional.node_parameters(x[:5]),
    ):
        assert_close(function(there).as_subclass(torch.Tensor), function(x))
