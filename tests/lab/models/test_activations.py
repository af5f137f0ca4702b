import pytest
import torch

from graphrelu.lab.models.activations import (
    ACTIVATIONS,
    ELU,
    GELU,
    LeakyReLU,
    Maxout,
    PReLU,
    ReLU,
    SiLU,
)
from tests.helpers import random_graph


def test_values() -> None:
    x = torch.tensor([[-2.0, -1.0, 0.0, 3.0]])
    edge_index = torch.empty(2, 0, dtype=torch.long)
    expected = {
        ReLU: [0.0, 0.0, 0.0, 3.0],
        LeakyReLU: [-0.02, -0.01, 0.0, 3.0],
        ELU: [-0.86466472, -0.63212056, 0.0, 3.0],
        PReLU: [-0.5, -0.25, 0.0, 3.0],
        GELU: [-0.04550026, -0.15865525, 0.0, 2.99595031],
        SiLU: [-0.23840584, -0.26894142, 0.0, 2.85772238],
    }
    for activation, values in expected.items():
        out = activation(4)(x, edge_index)
        torch.testing.assert_close(out, torch.tensor([values]))


def test_maxout_takes_the_larger_of_two_maps() -> None:
    act, x = Maxout(3), torch.randn(5, 3)
    assert act.lin.weight.shape == (6, 3)
    maps = act.lin(x).view(5, 2, 3)
    assert torch.equal(act(x, None), maps.amax(dim=1))


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_one_signature(name: str) -> None:
    act = ACTIVATIONS[name](6)
    x, edge_index = torch.randn(9, 6), random_graph(9, 20)
    batch = torch.zeros(9, dtype=torch.long)
    out = act(x, edge_index, torch.ones(20), batch, 1)
    assert out.shape == (9, 6)
    with torch.no_grad():
        for parameter in act.parameters():
            parameter.fill_(7.0)
    act.reset_parameters()
    assert all((parameter != 7.0).all() for parameter in act.parameters())
