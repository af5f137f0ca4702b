"""What the module does not ask of the reference: its defaults, and shapes that broadcast."""

import inspect

import pytest
import torch

from graphrelu import GReLU, functional
from graphrelu.calibration import DEFAULT


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
