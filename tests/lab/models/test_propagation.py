from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from graphrelu.lab.models.propagation import (
    SparseMatrix,
    StackedLinear,
    as_features,
    dropout,
    linear,
    matmul,
    row_normalized,
)
from tests.helpers import assert_close


def random_matrix(num_rows: int, num_cols: int) -> Tensor:
    """A fifth of the entries, the first row and the last column empty."""
    matrix = torch.randn(num_rows, num_cols, dtype=torch.double)
    matrix[torch.rand(num_rows, num_cols) > 0.2] = 0
    matrix[:1], matrix[:, -1:] = 0, 0
    return matrix


def product(matrix: SparseMatrix) -> Callable[[Tensor, Tensor], Tensor]:
    """The product, as a function of the values and the dense matrix."""
    return lambda value, x: matmul(matrix.with_value(value), x)


def test_gradients() -> None:
    dense = random_matrix(5, 4)
    matrix = SparseMatrix.from_tensor(dense)
    value, x = torch.randn_like(matrix.value), torch.randn(4, 3, dtype=torch.double)
    assert matrix.pattern.col.dtype == torch.int32
    assert_close(matmul(matrix, x), dense @ x)
    run, inputs = product(matrix), (value.requires_grad_(), x.requires_grad_())
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradcheck(vmap(run), [torch.stack([t, 2 * t]) for t in inputs])


def test_replicas() -> None:
    """One product of wider columns or, with values of their own, one with a block-diagonal
    matrix."""
    dense = random_matrix(6, 5)
    matrix, x = SparseMatrix.from_tensor(dense), torch.randn(3, 5, 2, dtype=torch.double)
    assert_close(vmap(lambda x: matmul(matrix, x))(x), dense @ x)
    scale = torch.tensor([1.0, 2.0, 3.0]).double()
    value, scaled = matrix.value * scale.view(3, 1), dense * scale.view(3, 1, 1)
    run = product(matrix)
    assert_close(vmap(run)(value, x), scaled @ x)
    assert_close(vmap(run, (0, None))(value, x[0]), scaled @ x[0])
    assert_close(vmap(run, (1, 2))(value.t(), x.permute(1, 2, 0)), scaled @ x)
    blocks = matrix.pattern.block_diagonal(3)
    assert matrix.pattern.block_diagonal(3) is blocks
    for replicas in range(10, 20):
        matrix.pattern.block_diagonal(replicas)
    assert matrix.pattern.block_diagonal(3) is not blocks  # only the last few are remembered


def test_features() -> None:
    dense = random_matrix(20, 30) * (torch.rand(20, 30) > 0.7)
    features = as_features(dense)
    assert isinstance(features, SparseMatrix)
    full = torch.rand(4, 3).double()
    assert as_features(full) is full
    weight, bias = torch.randn(6, 30).double(), torch.randn(6).double()
    for x in (dense, features, as_features(dense.to_sparse_csr())):
        assert_close(linear(x, weight, bias), dense @ weight.t() + bias)
        assert dropout(x, p=0.5, training=False) is x
    dropped = dropout(features, p=0.5, training=True)
    assert isinstance(dropped, SparseMatrix)
    assert set((dropped.value / features.value).tolist()) == {0.0, 2.0}
    assert torch.equal(dropped.value_t, dropped.value[dropped.order])


@pytest.mark.parametrize("nodes", [0, 5, 4096, 4099])
@pytest.mark.parametrize("models", [1, 10, 100])
@pytest.mark.parametrize("is_shared", [False, True])
def test_stacked_linear(is_shared: bool, models: int, nodes: int) -> None:
    """Below a vmap, with its gradients: whether the nodes are summed in parts or at once."""
    x = torch.randn(*([] if is_shared else [models]), nodes, 3, dtype=torch.double)
    weight = torch.randn(models, 4, 3, dtype=torch.double)
    grad = torch.randn(models, nodes, 4, dtype=torch.double)
    found = []
    for function in (F.linear, StackedLinear.apply):
        leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
        out = vmap(function, in_dims=(None if is_shared else 0, 0))(*leaves)
        found.append((out, *torch.autograd.grad(out, leaves, grad)))
    for expected, value in zip(*found, strict=True):
        assert_close(value, expected)


def test_row_normalized() -> None:
    x = 2 * torch.rand(7, 4) * (torch.rand(7, 4) > 0.6)
    x[3] = 0
    out = row_normalized(x.to_sparse_csr())
    assert out.layout == torch.sparse_csr
    assert_close(out.to_dense(), row_normalized(x), 1e-6)
    with pytest.raises(ValueError, match="x must not be negative"):
        row_normalized(-x.to_sparse_csr())
