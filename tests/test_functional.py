"""What the module does not ask of the reference: its defaults, and shapes that broadcast."""

import pytest
import torch

from graphrelu import GReLU, functional
from graphrelu.functional import Form
from tests.helpers import assert_close


class OnGPU(torch.Tensor):
    """Says that it is on a GPU: what is computed otherwise there is then computed here."""

    is_cuda = True


def test_defaults_are_those_of_the_module() -> None:
    """What is left out means the same in both."""
    assert GReLU(2)._form == Form()


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
