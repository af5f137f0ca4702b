from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv

from graphrelu.lab.models.dropout import SeededDropout, keep_mask
from tests.helpers import interpreted

STEP = torch.tensor(5)


def run(x: Tensor, seed: Tensor) -> Tensor:
    with SeededDropout(seed, STEP):
        return F.dropout(F.dropout(x, 0.5), 0.2)


def test_a_mask_is_the_run_s_own() -> None:
    """The same alone, in a batch of three, and in another order."""
    x, seeds = torch.randn(3, 40, 8), torch.tensor([7, 0, 123456789])
    together = torch.func.vmap(run)(x, seeds)
    for i in range(3):
        assert torch.equal(together[i], run(x[i], seeds[i]))
    assert torch.equal(torch.func.vmap(run)(x.flip(0), seeds.flip(0)), together.flip(0))


def test_features_that_all_runs_share() -> None:
    x, seeds = torch.randn(7, 5).t().requires_grad_(), torch.tensor([7, 0, 2**40 - 3])
    together = torch.func.vmap(run, in_dims=(None, 0))(x, seeds)
    alone = [run(x, seed) for seed in seeds]
    assert torch.equal(together, torch.stack(alone))
    (grad,) = torch.autograd.grad(together.pow(2).sum(), x)
    (expected,) = torch.autograd.grad(sum(out.pow(2).sum() for out in alone), x)
    torch.testing.assert_close(grad, expected)

    def loss(x: Tensor, seed: Tensor) -> Tensor:
        return run(x, seed).pow(2).sum()

    grads = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(x.detach(), seeds)
    torch.testing.assert_close(grads.sum(dim=0), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [0, 1, 400])
def test_what_the_mask_keeps(size: int, dtype: torch.dtype) -> None:
    """In four calls, at a step of its own, in the order of the elements and not of the memory."""
    seed, step = torch.tensor(2**35 + 11), torch.tensor(10**6)
    x = 1 + torch.rand(3, size, dtype=dtype).t()
    with SeededDropout(seed, step):
        for call, p in enumerate((0.1, 0.5, 0.6, 0.999)):
            keep = keep_mask(seed, step, call, x.numel(), p).view(x.shape)
            out, expected = F.dropout(x, p), torch.where(keep, x / (1 - p), 0.0)
            assert torch.equal(out != 0, keep)
            torch.testing.assert_close(out, expected)


def test_on_the_kernel() -> None:
    """Once more with the GPU's implementation, in Triton's interpreter."""
    chosen = "own or share or keeps or gradient"
    done = interpreted("-m", "pytest", "-p", "no:xdist", __file__, "-k", chosen)
    assert "16 passed" in done.stdout, done.stdout


def test_share_and_scale() -> None:
    out = run(torch.ones(500, 400), torch.tensor(1))
    assert set(out.unique().tolist()) == {0.0, 2.5}
    assert abs((out > 0).double().mean() - 0.4) < 0.005
    assert keep_mask(torch.tensor(0), STEP, 0, 1000, 0.0).all()


def test_masks_are_unrelated() -> None:
    """Between seeds, steps, calls and neighbouring elements, as far as 100,000 coins can tell."""
    size = 100_000
    coins = [
        keep_mask(torch.tensor(seed), torch.tensor(step), call, size, 0.5).double() * 2 - 1
        for seed in (0, 1, 2, 2**20)
        for step in (0, 1, 2)
        for call in (0, 1)
    ]
    masks = torch.stack(coins)
    correlation = masks @ masks.t() / size - torch.eye(len(coins), dtype=torch.double)
    assert correlation.abs().max() < 5 / size**0.5
    for lag in (1, 2, 16, 64):
        assert (masks[:, lag:] * masks[:, :-lag]).mean(dim=1).abs().max() < 5 / size**0.5


def test_evaluation_and_gradient() -> None:
    x = torch.randn(20, 4, requires_grad=True)
    with SeededDropout(torch.tensor(1), STEP):
        assert F.dropout(x, 0.5, training=False) is x
        out = F.dropout(x, 0.5)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(grad, torch.where(out != 0, 2.0, 0.0))


def test_reaches_into_pyg() -> None:
    """Attention dropout of a stock convolution obeys the seed, not torch's generator."""
    conv, x = GATConv(4, 4, dropout=0.6), torch.randn(10, 4)
    edge_index = torch.randint(10, (2, 40))

    def attend(seed: int) -> Tensor:
        with SeededDropout(torch.tensor(seed), STEP):
            return conv(x, edge_index)

    assert torch.equal(attend(3), attend(3))
    assert not torch.equal(attend(3), attend(4))
