import copy
import pickle

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from graphrelu import GReLU
from graphrelu import diffusion as diffusion_module
from tests import oracle
from tests.helpers import (
    assert_close,
    batch_of_graphs,
    gradients,
    opened,
    random_graph,
    reference,
)

MODES = ("calibrated", "paper")
VARIANTS = tuple("ABCDEFG")


def test_repr_shows_what_differs_from_the_default() -> None:
    assert str(GReLU(16)) == "GReLU(16)"
    assert str(GReLU(8, K=3, dropout=0.2)) == "GReLU(8, K=3, dropout=0.2)"
    assert str(GReLU(8, mode="paper", diagonal=False)) == "GReLU(8, mode='paper')"
    assert str(GReLU(8, diagonal=False)) == "GReLU(8, diagonal=False)"
    assert str(GReLU.variant("F", 4)) == "GReLU(4, node_wise=False)"
    assert str(GReLU(4, sync=True)) == "GReLU(4, sync=True)"
    for act in (GReLU(8, K=3, hidden=4), GReLU.variant("G", 4), GReLU(4, track_running_stats=True)):
        assert str(eval(str(act))) == str(act)


def test_hidden_is_a_layer_of_both_mlps() -> None:
    act = GReLU(4, hidden=3)
    assert act.channel_mlp.first.weight.shape == act.node_mlp.first.weight.shape == (3, 4)


SEGMENTS = [(v, K) for v in VARIANTS for K in ((1,) if v in "CD" else (1, 2, 3, 7))]


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("variant", "K"), SEGMENTS)
def test_oracle(variant: str, K: int, mode: str, batched: bool) -> None:
    """Module and reference agree with nested loops written from the paper, gradients too."""
    edge_index, batch = batch_of_graphs([4, 2] if batched else [5])
    # A weight large enough that some gamma are capped and all segments are chosen somewhere.
    act = opened(GReLU.variant(variant, 3, K=K, mode=mode, steps=3)).double()
    for parameter in act.parameters():
        parameter.data *= 3
    x = 3 * torch.randn(batch.numel(), 3, dtype=torch.double)
    x.requires_grad_()
    weight = torch.ones(edge_index.size(1))
    kwargs = {"batch": batch, "batch_size": 2} if batched else {}

    inputs = [x, *act.parameters()]
    expected = oracle.grelu(act, x, edge_index, weight, batch.tolist())
    expected_grads = gradients(expected, inputs)
    for out in (act(x, edge_index, **kwargs), reference(act, x, edge_index, **kwargs)[0]):
        assert_close(out, expected)
        for grad, expected_grad in zip(gradients(out, inputs), expected_grads, strict=True):
            assert_close(grad, expected_grad)


@pytest.mark.parametrize(
    "options",
    [
        {"hidden": 4},
        {"hidden": 4, "channel_wise": False},
        {"hidden": 4, "node_wise": False},
        {"add_self_loops": True},
        {"negative_slope": 0.3},
        {"negative_slope": -1.0, "K": 3},
        {"alpha": 1.0},
        {"alpha": 0.9, "bias": False},
    ],
)
def test_oracle_options(options: dict) -> None:
    edge_index, batch = batch_of_graphs([5, 3])
    weight = torch.rand(edge_index.size(1), dtype=torch.double)
    act = opened(GReLU(3, steps=3, **options)).double()
    x = torch.randn(8, 3, dtype=torch.double, requires_grad=True)
    inputs = [x, *act.parameters()]
    expected = oracle.grelu(act, x, edge_index, weight, batch.tolist())
    out = act(x, edge_index, weight, batch)
    assert_close(out, expected)
    grads = zip(gradients(out, inputs), gradients(expected, inputs), strict=True)
    for grad, expected_grad in grads:
        assert_close(grad, expected_grad)


@pytest.mark.parametrize("diffusion", ["power", "chebyshev", "exact"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_reference(variant: str, mode: str, diffusion: str) -> None:
    """On a larger graph, where loops are too slow: every block of nodes, every gradient."""
    edge_index = random_graph(300, 900, undirected=True)
    act = opened(GReLU.variant(variant, 5, mode=mode, diffusion=diffusion)).double()
    x = torch.randn(300, 5, dtype=torch.double, requires_grad=True)
    weight = torch.rand(900, dtype=torch.double).repeat(2)
    inputs = [x, *act.parameters()]
    out = act(x, edge_index, weight)
    expected, slopes, intercepts = reference(act, x, edge_index, edge_weight=weight)
    assert_close(out, expected)
    for a, b in zip(gradients(out, inputs), gradients(expected, inputs), strict=True):
        assert_close(a, b)
    for a, b in zip(act.coefficients(x, edge_index, weight), (slopes, intercepts), strict=True):
        assert a.shape == (300, act.K, 5)
        assert_close(a, b)


def test_coefficients_are_those_applied() -> None:
    edge_index, batch = batch_of_graphs([6, 9])
    act = opened(GReLU(4, K=3))
    x = torch.randn(15, 4)
    slopes, intercepts = act.coefficients(x, edge_index, batch=batch)
    out = (slopes * x.unsqueeze(1) + intercepts).amax(dim=1)
    assert_close(act(x, edge_index, batch=batch), out, 1e-6)


def test_one_segment_without_intercept_weights_nodes_and_channels() -> None:
    """Section 4.3: the linear form of GReLU is attention over nodes and channels."""
    act = GReLU(4, K=1, bias=False, mode="paper")
    x, edge_index = torch.randn(9, 4), random_graph(9, 30)
    slopes, _ = act.coefficients(x, edge_index)
    assert_close(act(x, edge_index), slopes[:, 0] * x, 1e-6)
    assert torch.linalg.matrix_rank(slopes[:, 0]) == 1


def test_printed_form_shrinks_with_the_graph() -> None:
    """Ten times the nodes, a tenth of the output; the calibrated form stays in scale."""
    sizes, scale = (100, 1000), {}
    for mode in MODES:
        for size in sizes:
            torch.manual_seed(1)
            act = opened(GReLU(4, mode=mode)).double()
            x = torch.randn(100, 4, dtype=torch.double).repeat(size // 100, 1)
            scale[mode, size] = act(x, torch.empty(2, 0, dtype=torch.long)).abs().mean()
    assert_close(scale["paper", 100], 10 * scale["paper", 1000])
    assert_close(scale["calibrated", 100], scale["calibrated", 1000])


def test_permutation() -> None:
    edge_index, perm = random_graph(40, 150), torch.randperm(40)
    act = opened(GReLU(6)).double()
    x = torch.randn(40, 6, dtype=torch.double)
    position = torch.argsort(perm)
    assert_close(act(x[perm], position[edge_index]), act(x, edge_index)[perm])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_batch_is_its_graphs(variant: str, mode: str) -> None:
    sizes = [5, 1, 12, 0, 7]
    edge_index, batch = batch_of_graphs(sizes)
    act = opened(GReLU.variant(variant, 4, mode=mode)).double()
    x = torch.randn(25, 4, dtype=torch.double)
    out = act(x, edge_index, batch=batch, batch_size=5)
    alone, start = [], 0
    for size in sizes:
        inside = (edge_index[0] >= start) & (edge_index[0] < start + size)
        alone.append(act(x[start : start + size], edge_index[:, inside] - start))
        start += size
    assert_close(out, torch.cat(alone))
    assert_close(out, act(x, edge_index, batch=batch))


def test_edge_index_types() -> None:
    edge_index, weight = random_graph(20, 60), torch.rand(60)
    pairs = edge_index.unique(dim=1).contiguous()
    weight = weight[: pairs.size(1)]
    act = opened(GReLU(4))
    x = torch.randn(20, 4)
    out = act(x, pairs, weight)
    assert_close(act(x, EdgeIndex(pairs, sparse_size=(20, 20)), weight), out, 1e-6)
    assert_close(act(x, pairs.int(), weight), out, 1e-6)
    for convert in (to_torch_coo_tensor, to_torch_csr_tensor, to_torch_csc_tensor):
        adj_t = convert(pairs.flip(0), weight, size=20)
        assert_close(act(x, adj_t), out, 1e-6)
    # adj_t's rows are targets: PyG's own convolution reads it the same way.
    conv = GCNConv(4, 4, add_self_loops=False)
    adj_t = to_torch_csr_tensor(pairs.flip(0), weight, size=20)
    assert_close(conv(x, adj_t), conv(x, pairs, weight), 1e-5)


def test_torch_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `torch_sparse` is installed, its matrices serve as `adj_t`, prepared once."""
    torch_sparse = pytest.importorskip("torch_sparse", reason="torch_sparse is optional")
    calls = []
    prepare = diffusion_module.prepare
    monkeypatch.setattr(diffusion_module, "prepare", lambda *a: calls.append(1) or prepare(*a))
    pairs = random_graph(20, 60).unique(dim=1).contiguous()
    weight, act, x = torch.rand(pairs.size(1)), opened(GReLU(4)), torch.randn(20, 4)
    out = act(x, pairs, weight)
    adj_t = torch_sparse.SparseTensor(
        row=pairs[1], col=pairs[0], value=weight, sparse_sizes=(20, 20)
    )
    for _ in range(3):
        assert_close(act(x, adj_t), out, 1e-6)
    assert len(calls) == 2
    with pytest.raises(ValueError, match="edge_weight must be None"):
        act(x, adj_t, weight)


@pytest.mark.parametrize("variant", VARIANTS)
def test_degenerate_graphs(variant: str) -> None:
    act = opened(GReLU.variant(variant, 4))
    no_edges = torch.empty(2, 0, dtype=torch.long)
    cases = {
        "isolated": (torch.randn(6, 4), torch.tensor([[0, 1], [1, 0]])),
        "no edges": (torch.randn(6, 4), no_edges),
        "one node": (torch.randn(1, 4), no_edges),
        "a loop": (torch.randn(1, 4), torch.zeros(2, 1, dtype=torch.long)),
        "no nodes": (torch.randn(0, 4), no_edges),
        "duplicates": (torch.randn(3, 4), torch.tensor([[0, 0, 0, 1], [1, 1, 1, 1]])),
        "directed": (torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]])),
        "large": (1e4 * torch.randn(50, 4), random_graph(50, 100)),
    }
    for name, (x, edge_index) in cases.items():
        x.requires_grad_()
        out = act(x, edge_index)
        expected = reference(act, x, edge_index)[0]
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5, msg=name)
        for grad in torch.autograd.grad(out.sum(), [x, *act.parameters()]):
            assert grad.isfinite().all(), name


def test_empty_graphs_in_a_batch() -> None:
    act = opened(GReLU(4))
    x = torch.randn(3, 4, requires_grad=True)
    batch = torch.tensor([1, 1, 3])
    out = act(x, torch.tensor([[0, 1], [1, 0]]), batch=batch, batch_size=5)
    for grad in torch.autograd.grad(out.sum(), [x, *act.parameters()]):
        assert grad.isfinite().all()
    nothing = torch.empty(0, dtype=torch.long)
    for batch_size in (None, 0, 2):
        empty = act(x[:0], torch.empty(2, 0, dtype=torch.long), None, nothing, batch_size)
        assert empty.shape == (0, 4)


def test_duplicate_edges_are_weights() -> None:
    act = opened(GReLU(4))
    x = torch.randn(5, 4)
    twice = torch.tensor([[0, 0, 1, 2], [1, 1, 2, 0]])
    once, weight = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([2.0, 1.0, 1.0])
    assert_close(act(x, twice), act(x, once, weight), 1e-6)


def test_learned_edge_weights_get_their_gradient() -> None:
    for diffusion in ("power", "chebyshev", "exact"):
        edge_index = random_graph(8, 12, undirected=True)
        weight = torch.rand(12, dtype=torch.double).repeat(2).requires_grad_()
        act = opened(GReLU(3, diffusion=diffusion, validate=False)).double()
        x = torch.randn(8, 3, dtype=torch.double)
        out, expected = (
            act(x, edge_index, weight),
            reference(act, x, edge_index, edge_weight=weight),
        )
        grad, expected_grad = gradients(out, [weight]), gradients(expected[0], [weight])
        assert_close(grad[0], expected_grad[0])
        assert grad[0].abs().max() > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("batched", [False, True])
def test_half_precision(dtype: torch.dtype, batched: bool) -> None:
    edge_index, batch = batch_of_graphs([30, 20])
    kwargs = {"batch": batch} if batched else {}
    act = opened(GReLU(8))
    for scale in (1.0, 4e3):  # a slope is at most four: the output has a place in the type
        x = (scale * torch.randn(50, 8).clamp(-3, 3)).to(dtype).requires_grad_()
        exact = act(x.double().detach(), edge_index, **kwargs)
        with torch.autocast("cpu", dtype=dtype):
            out = act(x, edge_index, **kwargs)
            grads = torch.autograd.grad(out.float().mean(), [x, *act.parameters()])
        assert out.dtype == dtype
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(out.double(), exact, rtol=2 * eps, atol=2 * eps)
        assert all(grad.isfinite().all() for grad in grads)
    half = copy.deepcopy(act).to(dtype)
    assert half(x, edge_index, **kwargs).dtype == dtype


def test_float32_precision() -> None:
    edge_index = random_graph(2000, 8000)
    act = opened(GReLU(16))
    x = torch.randn(2000, 16)
    exact = copy.deepcopy(act).double()(x.double(), edge_index)
    torch.testing.assert_close(act(x, edge_index).double(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("K", [2, 3])
def test_every_parameter_learns(K: int) -> None:
    edge_index = random_graph(60, 200)
    act = GReLU(8, K=K)
    optimizer = torch.optim.Adam(act.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        (act(torch.randn(60, 8), edge_index) - 1).pow(2).mean().backward()
        optimizer.step()
    for name, parameter in act.named_parameters():
        assert parameter.grad.abs().max() > 0, name


def test_reset_parameters_forgets_everything() -> None:
    act = opened(GReLU(4, hidden=3, cached=True))
    act(torch.randn(5, 4), random_graph(5, 9))
    before = {name: p.clone() for name, p in act.named_parameters()}
    act.reset_parameters()
    assert act._cached_graph is None
    for name, parameter in act.named_parameters():
        assert not torch.equal(parameter, before[name]), name
    x = torch.randn(5, 4)
    assert torch.equal(act(x, random_graph(5, 9)), x.relu())


def test_cached() -> None:
    act, x = opened(GReLU(4, cached=True)), torch.randn(6, 4)
    first = act(x, random_graph(6, 20))
    assert torch.equal(act(x, random_graph(6, 20)), first)  # as GCNConv: the first graph stays
    with pytest.raises(ValueError, match="cached=False"):
        act(torch.randn(7, 4), random_graph(7, 20))
    assert torch.equal(copy.deepcopy(act)(x, None), first)
    assert torch.equal(pickle.loads(pickle.dumps(act))(x, None), first)


def test_copies() -> None:
    act, x, edge_index = opened(GReLU(4, K=3)), torch.randn(6, 4), random_graph(6, 20)
    out = act(x, edge_index)
    assert torch.equal(copy.deepcopy(act)(x, edge_index), out)
    assert torch.equal(pickle.loads(pickle.dumps(act))(x, edge_index), out)
    other = GReLU(4, K=3)
    assert other.load_state_dict(act.state_dict()).missing_keys == []
    assert torch.equal(other(x, edge_index), out)


def test_layers_share_one_preparation(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    prepare = diffusion_module.prepare
    monkeypatch.setattr(diffusion_module, "prepare", lambda *a: calls.append(1) or prepare(*a))
    acts = [GReLU(4) for _ in range(3)]
    x, edge_index, weight = torch.randn(30, 4), random_graph(30, 99), torch.rand(99)
    for _ in range(2):
        for act in acts:
            act(x, edge_index, weight)
    assert len(calls) == 1
    opened(acts[0])
    before = acts[0](x, edge_index, weight)
    weight.mul_(torch.rand(99))  # changed in place: another graph
    after = acts[0](x, edge_index, weight)
    assert len(calls) == 2
    assert not torch.equal(before, after)
    adj_t = to_torch_csr_tensor(edge_index.unique(dim=1), size=30)
    for act in acts:
        act(x, adj_t)
    assert len(calls) == 3


def test_prepared_in_inference_mode_then_trained() -> None:
    act, x, edge_index = opened(GReLU(4)), torch.randn(9, 4), random_graph(9, 30)
    with torch.inference_mode():
        out = act(x, edge_index)
    x.requires_grad_()
    trained = act(x, edge_index)
    assert torch.equal(trained, out)
    trained.sum().backward()
    with torch.inference_mode():
        made_inside = random_graph(9, 30)
        assert torch.equal(act(x, made_inside), act(x, made_inside.clone()))
