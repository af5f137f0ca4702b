"""A fresh module is ReLU, or LeakyReLU, to the last bit, in both passes; and has few parameters."""

import os
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from graphrelu import GReLU
from tests.helpers import batch_of_graphs, opened, random_graph

# In Triton's interpreter, which `test_triton.py` starts, the GPU's kernels are the path to test.
BACKENDS = ["triton"] if os.environ.get("TRITON_INTERPRET") else ["torch", "reference"]
ADAPTIVE = tuple("ABEFG")


def features(dtype: torch.dtype = torch.float) -> Tensor:
    """Very large and very small numbers, and zeros."""
    x = torch.randn(40, 6) * torch.logspace(-30, 30, 40).view(-1, 1)
    x[0] = 0.0
    x[1, :2] = torch.tensor([0.0, -0.0])
    if dtype in (torch.float16, torch.bfloat16):
        x = x.clamp(-1e4, 1e4)
    return x.to(dtype)


def assert_same(act: GReLU, expected: Callable[[Tensor], Tensor], x: Tensor, **graph: Tensor):
    """The same output, and the same gradient of `x`."""
    weight = torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view_as(x)
    found = []
    for function in (lambda z: act(z, **graph), expected):
        z = x.clone().requires_grad_()
        out = function(z)
        found.append((out.detach(), *torch.autograd.grad(out, z, weight)))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("K", [2, 3, 7])
@pytest.mark.parametrize("variant", ADAPTIVE)
def test_fresh_module_is_relu_in_both_passes(
    variant: str, K: int, diagonal: bool, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where x is zero, too: the gradient there is zero, as ReLU's is."""
    monkeypatch.setenv("GRAPHRELU_BACKEND", backend)
    edge_index, batch = batch_of_graphs([25, 15])
    options = {"K": K, "diagonal": diagonal, "steps": 2}
    # In the interpreter other types are a matter of `triton_cases.py`: it takes its time.
    for dtype in (torch.float,) if backend == "triton" else (torch.float, torch.bfloat16):
        x = features(dtype)
        assert int((x == 0).sum()) >= 8
        for graph in ({"edge_index": edge_index}, {"edge_index": edge_index, "batch": batch}):
            assert_same(GReLU.variant(variant, 6, **options), F.relu, x, **graph)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("K", [2, 3, 7])
@pytest.mark.parametrize("variant", ADAPTIVE)
def test_fresh_module_is_leaky_relu_in_both_passes(
    variant: str, K: int, diagonal: bool, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHRELU_BACKEND", backend)
    edge_index = random_graph(40, 120)
    for slope in (0.2, -0.5):
        options = {"K": K, "diagonal": diagonal, "steps": 2, "negative_slope": slope}
        act = GReLU.variant(variant, 6, **options)
        assert_same(act, lambda z, s=slope: F.leaky_relu(z, s), features(), edge_index=edge_index)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("variant", ["C", "D"])
def test_one_fresh_segment_is_the_identity(
    variant: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHRELU_BACKEND", backend)
    act = GReLU.variant(variant, 6, steps=2)
    assert_same(act, lambda z: 1.0 * z, features(), edge_index=random_graph(40, 120))


@pytest.mark.parametrize("backend", BACKENDS)
def test_fresh_module_with_a_hidden_layer_is_relu(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHRELU_BACKEND", backend)
    act = GReLU(6, hidden=4, steps=2)
    assert_same(act, F.relu, features(), edge_index=random_graph(40, 120))


@pytest.mark.parametrize("variant", ADAPTIVE)
def test_a_module_that_has_learned_is_not_relu(variant: str) -> None:
    """Else the tests above would show nothing."""
    x, edge_index = torch.randn(20, 6), random_graph(20, 60)
    assert not torch.allclose(opened(GReLU.variant(variant, 6))(x, edge_index), x.relu(), atol=0.1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tie_goes_to_the_last_segment(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At zero, without intercepts, all segments tie."""
    monkeypatch.setenv("GRAPHRELU_BACKEND", backend)
    for K in (2, 3, 4):
        act = opened(GReLU(6, K=K, bias=False, node_wise=False, topology=False))
        act.channel_mlp.weight.data.zero_()  # no gradient through the mean
        x = torch.zeros(5, 6, requires_grad=True)
        edge_index = random_graph(5, 9)
        (grad,) = torch.autograd.grad(act(x, edge_index).sum(), x)
        slopes, _ = act.coefficients(x, edge_index)
        torch.testing.assert_close(grad, slopes[:, -1])
        assert not torch.allclose(slopes[:, -1], slopes[:, -2], atol=1e-2)


@pytest.mark.parametrize(("channels", "K"), [(64, 2), (5, 1), (7, 3)])
def test_number_of_parameters(channels: int, K: int) -> None:
    def count(**options: object) -> int:
        return sum(p.numel() for p in GReLU(channels, K=K, **options).parameters())

    C = channels
    assert count() == (4 * K + 1) * C
    assert count(bias=False) == (2 * K + 1) * C
    assert count(node_wise=False) == 4 * K * C
    assert count(channel_wise=False) == K * C + K
    assert count(diagonal=False) == count(mode="paper") == 2 * K * C * (C + 1) + C
    assert count(mode="paper", channel_wise=False) == K * C
    assert count(dropout=0.5, scale=1.0, temperature=2.0, gamma_max=9.0) == count()


def test_number_of_parameters_of_64_channels() -> None:
    assert sum(p.numel() for p in GReLU(64).parameters()) == 576 == 9 * 64
    full = GReLU(64, diagonal=False)
    assert sum(p.numel() for p in full.parameters()) == 4 * 64**2 + 5 * 64
