from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from graphrelu.lab.models.dropout import _SPREAD, SeededDropout, _keeps, keep_mask

STEP = torch.tensor(5)


def run(x: Tensor, seed: Tensor) -> Tensor:
    with SeededDropout(seed, STEP):
        return F.dropout(F.dropout(x, 0.5), 0.2)


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_mask_is_the_run_s_own(is_shared: bool) -> None:
    """The same alone, in a batch of three, and in another order; also of features that all runs
    share, and with its gradient."""
    x, seeds = torch.randn(3, 40, 8), torch.tensor([7, 0, 2**40 - 3])
    x = (x[0] if is_shared else x).requires_grad_()
    alone = torch.stack([run(x if is_shared else x[i], seeds[i]) for i in range(3)])
    (expected,) = torch.autograd.grad(alone.pow(2).sum(), x)
    for order in ([0, 1, 2], [2, 0, 1]):
        own, dims = (x, (None, 0)) if is_shared else (x[order], (0, 0))
        together = torch.func.vmap(run, in_dims=dims)(own, seeds[order])
        assert torch.equal(together, alone[order])
        (grad,) = torch.autograd.grad(together.pow(2).sum(), x)
        torch.testing.assert_close(grad, expected)


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


def test_masks_stay_what_they_were() -> None:
    """Records are continued by later versions; more elements than a block of the CPU."""
    seed, step = torch.tensor([3, 2**33 + 1]), torch.tensor(17)
    mask = keep_mask(seed, step, 2, 100_000, 0.5)
    assert mask.sum(dim=1).tolist() == [50_088, 50_171]
    assert "".join("01"[bit] for bit in mask[0, :32].int()) == "10010010110100000011111100100110"


def test_arrays_and_tensors_are_mixed_alike() -> None:
    """NumPy on a CPU and torch on a GPU."""
    index, key = torch.arange(1000, dtype=torch.int32) * _SPREAD, torch.tensor(-12345).int()
    expected = _keeps(index, key, 0.3)
    assert _keeps(index.numpy(), key.numpy(), 0.3).tolist() == expected.tolist()
