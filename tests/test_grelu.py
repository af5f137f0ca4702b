import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from graphrelu import GReLU
from graphrelu import graph as graph_module
from graphrelu.functional import DIFFUSIONS, MODES
from tests import oracle
from tests.helpers import (
    OTHER,
    SHARP,
    assert_close,
    batch_of_graphs,
    opened,
    outcome,
    random_graph,
    reference,
    variant_of,
)

# Variant, options, and how many graphs are in the batch; none of them is no batch.
ORACLE: list[tuple[str, dict, int]] = [
    *((v, {"mode": mode}, graphs) for v in "ABCDEFG" for mode in MODES for graphs in (0, 2)),
    *((v, {"K": K, "mode": mode}, 2) for v in "AFG" for K in (1, 3, 7) for mode in MODES),
    ("G", OTHER, 2),
    ("A", {"negative_slope": 0.3}, 2),
    ("A", {"negative_slope": -1.0, "K": 3}, 2),
    ("A", {"alpha": 1.0}, 2),
    ("E", {"alpha": 0.9}, 2),
    *(("A", constants, 2) for constants in ({"scale": 1.0}, {"scale": 20.0}, {"temperature": 4.0})),
    *(("A", {**constants, "K": K}, 2) for constants in (OTHER, SHARP) for K in (1, 3)),
]


@pytest.mark.parametrize(("variant", "options", "graphs"), ORACLE, ids=str)
def test_oracle(variant: str, options: dict, graphs: int) -> None:
    """Module and reference agree with nested loops written from the paper, gradients too."""
    edge_index, batch = batch_of_graphs([4, 2] if graphs else [5])
    graph = {"batch": batch, "batch_size": graphs} if graphs else {}
    graph["edge_weight"] = torch.rand(edge_index.size(1), dtype=torch.double)
    # Large enough that some gamma are capped and all segments are chosen somewhere.
    act = opened(variant_of(variant, 3, steps=3, **options)).double()
    for parameter in act.parameters():
        parameter.data *= 3
    x = 3 * torch.randn(batch.numel(), 3, dtype=torch.double)
    inputs = [x.requires_grad_(), *act.parameters()]
    expected = oracle.grelu(act, x, edge_index, graph["edge_weight"], batch.tolist())
    expected = outcome(expected, inputs)
    assert_close(outcome(act(x, edge_index, **graph), inputs), expected)
    assert_close(outcome(reference(act, x, edge_index, **graph)[0], inputs), expected)


@pytest.mark.parametrize("channel_wise", [True, False])
def test_node_weights_are_one_on_average_and_bounded(channel_wise: bool) -> None:
    edge_index, batch = batch_of_graphs([40, 20])
    x = 3 * torch.randn(60, 4, dtype=torch.double)
    act = GReLU(4, K=3, channel_wise=channel_wise, temperature=0.5).double()
    ones = torch.ones(1 if channel_wise else 3, dtype=torch.double)
    for graph, sizes in ((None, [60]), (batch, [40, 20])):
        act.gamma_max = math.inf
        gamma = act.gamma(x, edge_index, batch=graph)
        for part in gamma.split(sizes):
            assert_close(part.mean(dim=0), ones)
        act.gamma_max = 1.5
        assert bool((gamma > 1.5).any())
        assert_close(act.gamma(x, edge_index, batch=graph), gamma.clamp(max=1.5))


def test_repr_shows_what_differs_from_the_default() -> None:
    assert str(GReLU(16)) == "GReLU(16)"
    assert str(GReLU(8, K=3, dropout=0.2)) == "GReLU(8, K=3, dropout=0.2)"
    assert str(GReLU(8, mode="paper")) == "GReLU(8, mode='paper')"
    assert str(variant_of("F", 4)) == "GReLU(4, node_wise=False)"
    for act in (GReLU(8, K=3), variant_of("G", 4)):
        assert str(eval(str(act))) == str(act)


@pytest.mark.parametrize(("C", "K"), [(64, 2), (5, 1), (7, 3)])
def test_number_of_parameters(C: int, K: int) -> None:
    def count(**options: object) -> int:
        return sum(p.numel() for p in GReLU(C, K=K, **options).parameters())

    assert count() == (4 * K + 1) * C
    assert count(bias=False) == (2 * K + 1) * C
    assert count(node_wise=False) == 4 * K * C
    assert count(channel_wise=False) == K * C + K
    assert count(mode="paper") == 2 * K * C * (C + 1) + C
    assert count(mode="paper", channel_wise=False) == K * C
    assert count(dropout=0.5, scale=1.0, temperature=2.0) == count()


def test_coefficients_are_those_applied() -> None:
    edge_index, batch = batch_of_graphs([6, 9])
    act, x = opened(GReLU(4, K=3)), torch.randn(15, 4)
    slopes, intercepts = act.coefficients(x, edge_index, batch=batch)
    assert slopes.shape == (15, 3, 4)
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
    scale = {}
    for mode in MODES:
        for size in (100, 1000):
            torch.manual_seed(1)
            act = opened(GReLU(4, mode=mode)).double()
            x = torch.randn(100, 4, dtype=torch.double).repeat(size // 100, 1)
            scale[mode, size] = act(x, torch.empty(2, 0, dtype=torch.long)).abs().mean()
    assert_close(scale["paper", 100], 10 * scale["paper", 1000])
    assert_close(scale["calibrated", 100], scale["calibrated", 1000])


@pytest.mark.parametrize("K", [2, 3, 4])
@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_a_tie_goes_to_the_last_segment(
    backend: str, K: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At zero, without intercepts, all segments tie."""
    monkeypatch.setenv("GRAPHRELU_BACKEND", backend)
    act = opened(GReLU(6, K=K, bias=False, node_wise=False, topology=False))
    act.channel_mlp.weight.data.zero_()  # no gradient through the mean
    x, edge_index = torch.zeros(5, 6, requires_grad=True), random_graph(5, 9)
    (grad,) = torch.autograd.grad(act(x, edge_index).sum(), x)
    slopes, _ = act.coefficients(x, edge_index)
    torch.testing.assert_close(grad, slopes[:, -1])
    assert not torch.allclose(slopes[:, -1], slopes[:, -2], atol=1e-2)


def test_edge_index_types() -> None:
    pairs = random_graph(20, 60).unique(dim=1).contiguous()
    weight, act, x = torch.rand(pairs.size(1)), opened(GReLU(4)), torch.randn(20, 4)
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("batched", [False, True])
def test_autocast(dtype: torch.dtype, batched: bool) -> None:
    """Changes nothing: half precision is computed in float32 with and without it."""
    edge_index, batch = batch_of_graphs([30, 20])
    graph = {"batch": batch} if batched else {}
    act = opened(GReLU(8))
    for x in (torch.randn(50, 8).to(dtype), torch.randn(50, 8)):
        inputs = [x.requires_grad_(), *act.parameters()]
        expected = outcome(act(x, edge_index, **graph), inputs)
        with torch.autocast("cpu", dtype=dtype):
            out = act(x, edge_index, **graph)
        assert out.dtype == x.dtype
        assert all(map(torch.equal, outcome(out, inputs), expected))
    assert copy.deepcopy(act).to(dtype)(x.to(dtype), edge_index, **graph).dtype == dtype


def test_reset_parameters_forgets_everything() -> None:
    act, x = opened(GReLU(4)), torch.randn(5, 4)
    act(x, random_graph(5, 9))
    before = {name: p.clone() for name, p in act.named_parameters()}
    act.reset_parameters()
    for name, parameter in act.named_parameters():
        assert not torch.equal(parameter, before[name]), name
    assert torch.equal(act(x, random_graph(5, 9)), x.relu())


def test_weights_of_older_versions_are_loaded() -> None:
    for act, name in ((GReLU(4), "node_mlp.weight"), (GReLU(4, mode="paper"), "channel_mlp.bias")):
        older = {key: value + 1 for key, value in act.state_dict().items()}
        expected = older.pop(name)
        older[name.replace("mlp.", "mlp.first.")] = expected
        model = torch.nn.Sequential(act)
        model.load_state_dict({f"0.{key}": value for key, value in older.items()})
        assert torch.equal(act.state_dict()[name], expected)


def test_copies() -> None:
    act, x, edge_index = opened(GReLU(4, K=3)), torch.randn(6, 4), random_graph(6, 20)
    other = GReLU(4, K=3)
    other.load_state_dict(act.state_dict())
    for twin in (copy.deepcopy(act), pickle.loads(pickle.dumps(act)), other):
        assert torch.equal(twin(x, edge_index), act(x, edge_index))


def preparations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each graph that is prepared from now on."""
    calls: list[int] = []
    to_csr = graph_module.to_csr
    monkeypatch.setattr(graph_module, "to_csr", lambda *a: calls.append(1) or to_csr(*a))
    return calls


def test_layers_share_one_preparation(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = preparations(monkeypatch)
    acts = [opened(GReLU(4)) for _ in range(3)]
    x, edge_index, weight = torch.randn(30, 4), random_graph(30, 99), torch.rand(99)
    for act in (*acts, *acts):
        before = act(x, edge_index, weight)
    assert len(calls) == 1
    weight.mul_(torch.rand(99))  # changed in place: another graph
    assert not torch.equal(before, acts[2](x, edge_index, weight))
    assert len(calls) == 2
    adj_t = to_torch_csr_tensor(edge_index.unique(dim=1), size=30)
    for act in acts:
        act(x, adj_t)
    assert len(calls) == 3


def test_torch_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `torch_sparse` is installed, its matrices serve as `adj_t`, prepared once."""
    torch_sparse = pytest.importorskip("torch_sparse", reason="torch_sparse is optional")
    calls = preparations(monkeypatch)
    pairs = random_graph(20, 60).unique(dim=1).contiguous()
    weight, act, x = torch.rand(pairs.size(1)), opened(GReLU(4)), torch.randn(20, 4)
    adj_t = torch_sparse.SparseTensor(
        row=pairs[1], col=pairs[0], value=weight, sparse_sizes=(20, 20)
    )
    out = act(x, pairs, weight)
    for _ in range(3):
        assert_close(act(x, adj_t), out, 1e-6)
    assert len(calls) == 2
    with pytest.raises(ValueError, match="edge_weight must be None"):
        act(x, adj_t, weight)


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


def test_threads_share_the_memory() -> None:
    """Several threads preparing and dropping graphs at once get their own results."""
    act, x = opened(GReLU(4)), torch.randn(5, 4)

    def work(seed: int) -> bool:
        generator = torch.Generator().manual_seed(seed)
        graphs = [torch.randint(5, (2, 9), generator=generator) for _ in range(30)]
        return all(torch.equal(act(x, graph), act(x, graph.clone())) for graph in graphs)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


@pytest.mark.parametrize("diffusion", DIFFUSIONS)
def test_learned_edge_weights_train_for_more_than_a_step(diffusion: str) -> None:
    """Nothing of the first backward pass is remembered, and the module can be copied."""
    act, edge_index = opened(GReLU(4, diffusion=diffusion)), random_graph(9, 20, undirected=True)
    x, weight = torch.randn(9, 4), torch.nn.Parameter(torch.rand(20).repeat(2))
    grads = []
    for _ in range(3):
        act(x, edge_index, weight).sum().backward()
        grads.append(weight.grad)
        weight.grad = None
        copy.deepcopy(act)
        pickle.dumps(act)
    assert all(torch.equal(grad, grads[0]) for grad in grads)
    assert bool(grads[0].any())
