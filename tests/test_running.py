"""Running statistics: what they average, and evaluation that does not depend on the batch."""

import copy

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch_geometric.utils import k_hop_subgraph

from graphrelu import GReLU
from graphrelu.functional import MODES
from tests.helpers import OTHER, SHARP, assert_close, batch_of_graphs, opened, outcome, random_graph

FORMS = [("A", OTHER), ("A", SHARP), *((v, {"mode": mode}) for v in "ABCDEFG" for mode in MODES)]


def tracked(variant: str = "A", channels: int = 4, **options: object) -> GReLU:
    act = opened(GReLU.variant(variant, channels, track_running_stats=True, **options)).double()
    for parameter in act.parameters():  # far from uniform weights, and some of them capped
        parameter.data *= 3
    return act


def features(num_nodes: int, channels: int = 4) -> Tensor:
    return torch.randn(num_nodes, channels, dtype=torch.double)


@pytest.mark.parametrize(("variant", "form"), FORMS, ids=str)
def test_training_uses_the_batch(variant: str, form: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output and gradients are those without statistics; after one batch evaluation repeats it. The
    reference backend gives the same output and statistics."""
    act = tracked(variant, **form)
    twin = copy.deepcopy(act)
    plain = GReLU.variant(variant, 4, **form).double()
    plain.load_state_dict(act.state_dict(), strict=False)
    x, edge_index = features(9).requires_grad_(), random_graph(9, 20)
    expected = outcome(plain(x, edge_index), [x, *plain.parameters()])
    assert_close(outcome(act(x, edge_index), [x, *act.parameters()]), expected)
    assert_close(act.eval()(x, edge_index), expected[0])
    monkeypatch.setenv("GRAPHRELU_BACKEND", "reference")
    for training in (True, False):
        assert_close(twin.train(training)(x, edge_index), expected[0])
    assert_close(list(twin.buffers()), list(act.buffers()))


@pytest.mark.parametrize("mode", MODES)
def test_averages(mode: str) -> None:
    """By their definition: the first batches weigh the same, the later ones a tenth."""
    act = tracked(mode=mode, topology=False, **({} if mode == "paper" else {"temperature": 2.0}))
    mean, normaliser = torch.zeros(1, 4, dtype=torch.double), 0.0
    for step in range(1, 15):
        x = features(3 * step)
        act(x, random_graph(3 * step, 9))
        z = act.node_mlp(x)
        z = z.exp().sum() if mode == "paper" else (z / act.temperature).exp().mean()
        latest = max(1 / step, 0.1)
        mean = (1 - latest) * mean + latest * x.mean(dim=0)
        normaliser = (1 - latest) * normaliser + latest * z.item()
    assert_close(act.statistics.running_mean, mean)
    assert float(act.statistics.running_log_normaliser.exp()) == pytest.approx(normaliser)
    assert int(act.statistics.num_batches_tracked) == 14


def trained(act: GReLU, batches: int = 3) -> GReLU:
    for _ in range(batches):
        act(features(12), random_graph(12, 30))
    return act.eval()


@pytest.mark.parametrize(("variant", "form"), FORMS, ids=str)
def test_batches_of_components(variant: str, form: dict) -> None:
    act = trained(tracked(variant, **form))
    sizes = [4, 1, 6, 3, 2, 5]
    edge_index, component = batch_of_graphs(sizes)
    x = features(sum(sizes))
    whole = act(x, edge_index)
    for size in range(1, len(sizes) + 1):
        for first in range(0, len(sizes), size):
            nodes = ((component >= first) & (component < first + size)).nonzero().view(-1)
            own = nodes[0]
            edges = edge_index[:, torch.isin(edge_index[0], nodes)] - own
            assert_close(act(x[nodes], edges), whole[nodes])


@pytest.mark.parametrize("batch_size", [1, 7, 40])
def test_batches_of_sampled_neighbourhoods(batch_size: int) -> None:
    """The nodes that `steps` products reach, and one hop more for the degrees of the outermost."""
    act = trained(tracked(steps=2))
    edge_index, x = random_graph(80, 100, undirected=True), features(80)
    whole = act(x, edge_index)
    for seeds in torch.randperm(80).split(batch_size)[:6]:
        nodes, edges, position, _ = k_hop_subgraph(
            seeds, act.steps + 1, edge_index, relabel_nodes=True, num_nodes=80
        )
        assert nodes.numel() < 80 or batch_size > 1
        assert_close(act(x[nodes], edges)[position], whole[seeds])


def test_state_dict() -> None:
    names = set(GReLU(4).state_dict())
    assert set(GReLU(4, sync=True).state_dict()) == names
    act = trained(tracked("A", 4))
    added = {"running_mean", "running_log_normaliser", "num_batches_tracked"}
    assert set(act.state_dict()) == names | {f"statistics.{name}" for name in added}
    other = GReLU(4, track_running_stats=True).double().eval()
    other.load_state_dict(act.state_dict())
    x, edge_index = features(5), random_graph(5, 9)
    assert torch.equal(other(x, edge_index), act(x, edge_index))
    assert torch.equal(copy.deepcopy(act)(x, edge_index), act(x, edge_index))


def test_only_the_forward_pass_in_training_updates() -> None:
    act = tracked()
    x, edge_index = features(5), random_graph(5, 9)
    act.gamma(x, edge_index)
    act.coefficients(x, edge_index)
    act(x[:0], edge_index[:, :0])
    assert int(act.statistics.num_batches_tracked) == 0
    act(x, edge_index)
    before = copy.deepcopy(act.state_dict())
    act.eval()(features(5), edge_index)
    act.train()(x[:0], edge_index[:, :0])
    assert all(torch.equal(value, before[name]) for name, value in act.state_dict().items())


def test_errors() -> None:
    act = GReLU(4, track_running_stats=True)
    x, edge_index = torch.randn(5, 4), random_graph(5, 9)
    with pytest.raises(ValueError, match="batch must be None with track_running_stats=True"):
        act(x, edge_index, batch=torch.zeros(5, dtype=torch.long))
    fresh = copy.deepcopy(act.state_dict())
    for forget in (dict, lambda: act.load_state_dict(fresh), act.reset_parameters):
        forget()
        with pytest.raises(RuntimeError, match=r"in eval\(\): call the module in train\(\) first"):
            act.eval()(x, edge_index)
        act.train()(x, edge_index)
        act.eval()(x, edge_index)


@pytest.mark.parametrize("mode", MODES)
def test_outliers(mode: str) -> None:
    """A node far from all that the statistics have seen: no overflow, in both passes."""
    act = GReLU(4, mode=mode, topology=False, track_running_stats=True)
    act(torch.zeros(5, 4), random_graph(5, 9))
    x = torch.full((2, 4), 1e4).mul(act.node_mlp.weight.detach().sign()).requires_grad_()
    out = opened(act).eval()(x, random_graph(2, 3))
    largest = 1.0 if mode == "paper" else act.gamma_max
    assert_close(act.gamma(x, random_graph(2, 3)), torch.full((2, 1), largest), 1e-6)
    assert all(bool(part.isfinite().all()) for part in outcome(out, [x, *act.parameters()]))
    act.train()(x, random_graph(2, 3))
    assert all(bool(buffer.isfinite().all()) for buffer in act.buffers())


@pytest.mark.parametrize(("variant", "form"), [("A", {}), ("G", {}), ("A", SHARP)], ids=str)
def test_compile(variant: str, form: dict) -> None:
    torch.compiler.reset()
    act = tracked(variant, **form)
    twin = copy.deepcopy(act)
    compiled = torch.compile(twin, fullgraph=True, backend="aot_eager")
    x, edge_index = features(9).requires_grad_(), random_graph(9, 20)
    for training in (True, True, False):
        expected = outcome(act.train(training)(x, edge_index), [x, *act.parameters()])
        twin.train(training)
        assert_close(outcome(compiled(x, edge_index), [x, *twin.parameters()]), expected)
    assert_close(list(twin.buffers()), list(act.buffers()))


@pytest.mark.parametrize("form", [{}, SHARP], ids=str)
def test_vmap_over_parameters_and_buffers(form: dict) -> None:
    acts = [tracked(**form) for _ in range(3)]
    parameters, buffers = stack_module_state(acts)
    skeleton = copy.deepcopy(acts[0]).to("meta")
    edge_index = random_graph(9, 20)
    for training in (True, True, False):
        x = features(9)
        skeleton.train(training)

        def run(p: dict, b: dict, x: Tensor = x) -> Tensor:
            return functional_call(skeleton, (p, b), (x, edge_index))

        looped = torch.stack([act.train(training)(x, edge_index) for act in acts])
        assert_close(vmap(run)(parameters, buffers), looped)
    for name, value in buffers.items():
        assert_close(value, torch.stack([act.get_buffer(name) for act in acts]))
