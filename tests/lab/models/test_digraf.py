"""The diffeomorphism against the public package and an integrator; the module against PyG."""

from unittest import mock

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from graphrelu.lab.models.digraf import DiGRAF, cpab, diffeomorphism
from tests.helpers import assert_close, batch_of_graphs

CELLS = (2, 3, 5, 16, 32)


def parameters(cells: int, fields: int = 4, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(fields, cells - 1, dtype=torch.double)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_the_public_package(cells: int, scale: float) -> None:
    """Its way in Python, in double precision: the compiled one is built with `-ffast-math`, by
    which infinite times are lost, and in single precision its rounding reaches 1e-4."""
    import difw

    # As the module has them, below 1; in single precision faster fields would magnify rounding.
    theta = parameters(cells, scale=scale).tanh()
    points = torch.rand(1_000, dtype=torch.double)
    settings = {"backend": "pytorch", "device": "cpu", "zero_boundary": True, "basis": "rref"}
    with mock.patch("torch.utils.cpp_extension.load", side_effect=RuntimeError):  # compiles
        theirs = difw.Cpab(cells, **settings)
    theirs.params.use_slow, theirs.params.B = True, torch.from_numpy(theirs.tess.B)
    torch.set_default_dtype(torch.double)
    try:
        expected = theirs.transform_grid(points, theta)
    finally:
        torch.set_default_dtype(torch.float)
    for dtype, tolerance in ((torch.float, 1e-5), (torch.double, 1e-7)):
        out = cpab(points.to(dtype).expand(4, -1), theta.to(dtype), torch.arange(4))
        torch.testing.assert_close(out.double(), expected, rtol=0, atol=tolerance)


def test_it_is_a_diffeomorphism() -> None:
    """Increasing, onto, with the flow backwards as its inverse; nothing moves without parameters,
    and a point on an edge moves as its neighbours do."""
    theta, u = parameters(16, 1, 3.0), torch.linspace(0, 1, 1_001, dtype=torch.double).view(-1, 1)
    out = cpab(u, theta)
    assert (out.diff(dim=0) > 0).all()
    assert_close(out[[0, -1]], u[[0, -1]])
    assert_close(cpab(out, -theta), u, 1e-8)
    assert_close(cpab(u, 0 * theta), u)
    edge = torch.arange(17, dtype=torch.double).view(-1, 1) / 16
    for step in (-1e-9, 1e-9):
        beside = (edge + step).clamp(0, 1)
        assert_close(cpab(beside, theta), cpab(edge, theta), 1e-7)
    wide = 7 * torch.randn(50, 3)
    moved = diffeomorphism(wide, theta.float())
    assert torch.equal(moved[wide.abs() > 5], wide[wide.abs() > 5])
    assert (moved != wide).any()
    assert moved[wide.abs() < 5].abs().max() <= 5


@pytest.mark.parametrize("scale", [0.0, 0.3, 3.0])
def test_gradients_of_the_diffeomorphism(scale: float) -> None:
    """Also where nothing moves, and with a field for each graph; at edges they are finite."""
    theta = parameters(5, 2, scale).requires_grad_()
    u = torch.rand(6, 3, dtype=torch.double, requires_grad=True)
    graph = torch.tensor([0, 0, 1, 1, 1, 0])
    assert torch.autograd.gradcheck(lambda u, theta: cpab(u, theta, graph), (u, theta))
    assert torch.autograd.gradcheck(lambda u, theta: cpab(u, theta[:1]), (u, theta))
    theta = torch.tensor([[1.0, -2.0, 0.0, 1e-30]]).requires_grad_()
    u = torch.cat([torch.linspace(0, 1, 11), torch.tensor([1e-38, 0.2, 1 - 1e-7])]).view(-1, 1)
    for gradient in torch.autograd.grad(cpab(u.requires_grad_(), theta).sum(), (u, theta)):
        assert gradient.isfinite().all()


def test_formula() -> None:
    """Two of PyG's GCN layers, their mean, a perceptron; for each graph of a batch its own."""
    edge_index, batch = batch_of_graphs([4, 7, 3])
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    act, x = DiGRAF(5).double(), torch.randn(14, 5).double()
    weight = torch.rand(edge_index.size(1)).double()
    first, second = GCNConv(5, 16).double(), GCNConv(16, 16).double()
    for conv, linear in ((first, act.first), (second, act.second)):
        conv.lin.weight.data, conv.bias.data = linear.weight.data, linear.bias.data
    out = act(x, edge_index, weight, batch, 3)
    for graph in range(3):
        nodes, inside = (batch == graph).nonzero().view(-1), batch[edge_index[0]] == graph
        edges = edge_index[:, inside] - nodes[0]
        hidden = second(first(x[nodes], edges, weight[inside]).relu(), edges, weight[inside])
        theta = act.last(act.third(hidden.mean(0, keepdim=True)).relu()).tanh()
        assert_close(out[nodes], diffeomorphism(x[nodes], theta))
