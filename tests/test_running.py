"""Running statistics: what they average, and evaluation that does not depend on the batch."""

import copy

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader, RandomNodeLoader
from torch_geometric.nn import GCNConv
from torch_geometric.utils import k_hop_subgraph

from graphrelu import GReLU
from graphrelu.statistics import GraphStatistics
from tests.helpers import (
    FULL,
    OTHER,
    assert_close,
    batch_of_graphs,
    gradients,
    opened,
    random_graph,
)

MODES = ("calibrated", "paper")
VARIANTS = tuple("ABCDEFG")
CONSTANTS = [OTHER, FULL]
FORMS = [*({"mode": mode} for mode in MODES), *CONSTANTS]


def tracked(variant: str = "A", channels: int = 4, **options: object) -> GReLU:
    act = opened(GReLU.variant(variant, channels, track_running_stats=True, **options)).double()
    for parameter in act.parameters():  # far from uniform weights, and some of them capped
        parameter.data *= 3
    return act


def features(num_nodes: int, channels: int = 4) -> Tensor:
    return torch.randn(num_nodes, channels, dtype=torch.double)


def statistics(act: GReLU) -> GraphStatistics:
    assert act.statistics is not None
    return act.statistics


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_training_uses_the_batch(variant: str, form: dict) -> None:
    """Output and gradients are those without statistics; after one batch evaluation repeats it."""
    act = tracked(variant, **form)
    plain = GReLU.variant(variant, 4, **form).double()
    plain.load_state_dict(act.state_dict(), strict=False)
    x, edge_index = features(9).requires_grad_(), random_graph(9, 20)
    out, expected = act(x, edge_index), plain(x, edge_index)
    assert_close(out, expected)
    inputs = ([x, *act.parameters()], [x, *plain.parameters()])
    for a, b in zip(gradients(out, inputs[0]), gradients(expected, inputs[1]), strict=True):
        assert_close(a, b)
    assert_close(act.eval()(x, edge_index), expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("momentum", [0.25, 1.0, None])
def test_averages(momentum: float | None, mode: str) -> None:
    """By their definition: the first batches weigh the same, the later ones `momentum`."""
    act = tracked(momentum=momentum, mode=mode, topology=False, temperature=2.0)
    mean, normaliser = torch.zeros(1, 4, dtype=torch.double), 0.0
    for step in range(1, 8):
        x = features(3 * step)
        act(x, random_graph(3 * step, 9))
        z = act.node_mlp(x)
        z = z.exp().sum() if mode == "paper" else (z / act.temperature).exp().mean()
        latest = max(1 / step, momentum or 0.0)
        mean = (1 - latest) * mean + latest * x.mean(dim=0)
        normaliser = (1 - latest) * normaliser + latest * z.item()
    assert_close(statistics(act).running_mean, mean)
    assert float(statistics(act).running_log_normaliser.exp()) == pytest.approx(normaliser)
    assert int(statistics(act).num_batches_tracked) == 7


def trained(act: GReLU, batches: int = 3) -> GReLU:
    for _ in range(batches):
        act(features(12), random_graph(12, 30))
    return act.eval()


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
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


def test_sampled_neighbourhoods_of_a_model() -> None:
    """In float32 and with two convolutions around, each one hop and one for its degrees."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            act = GReLU(8, steps=2, track_running_stats=True)
            self.conv1, self.act, self.conv2 = GCNConv(4, 8), opened(act), GCNConv(8, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv2(self.act(self.conv1(x, edge_index), edge_index), edge_index)

    net, x = Net(), torch.randn(80, 4)
    edge_index = random_graph(80, 90, undirected=True)
    net(x, edge_index)
    whole = net.eval()(x, edge_index)
    for seeds in torch.randperm(80).split(10):
        nodes, edges, position, _ = k_hop_subgraph(
            seeds, 2 + net.act.steps + 1, edge_index, relabel_nodes=True, num_nodes=80
        )
        assert_close(net(x[nodes], edges)[position], whole[seeds], 1e-5)


def test_without_statistics_the_batch_matters() -> None:
    """Else the tests above would show nothing."""
    act = tracked()
    edge_index, component = batch_of_graphs([6, 6])
    x, first = features(12), component == 0
    edges = edge_index[:, first[edge_index[0]]]
    act(x, edge_index)
    alone, together = act(x[first], edges), act(x, edge_index)[first]
    assert not torch.allclose(alone, together, atol=1e-2)


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
    assert set(GReLU.variant("F", 4, track_running_stats=True).state_dict()) == {
        *GReLU.variant("F", 4).state_dict(),
        "statistics.running_mean",
        "statistics.num_batches_tracked",
    }


def test_only_the_forward_pass_in_training_updates() -> None:
    act = tracked()
    x, edge_index = features(5), random_graph(5, 9)
    act.gamma(x, edge_index)
    act.coefficients(x, edge_index)
    act(x[:0], edge_index[:, :0])
    assert int(statistics(act).num_batches_tracked) == 0
    act(x, edge_index)
    before = copy.deepcopy(act.state_dict())
    act.eval()(features(5), edge_index)
    act.train()(x[:0], edge_index[:, :0])
    assert all(torch.equal(value, before[name]) for name, value in act.state_dict().items())


def test_errors() -> None:
    act = GReLU(4, track_running_stats=True)
    x, edge_index = torch.randn(5, 4), random_graph(5, 9)
    batch = torch.zeros(5, dtype=torch.long)
    with pytest.raises(ValueError, match="batch must be None with track_running_stats=True"):
        act(x, edge_index, batch=batch)
    never = r"needs statistics in eval\(\): call the module in train\(\) first"
    with pytest.raises(RuntimeError, match=never):
        act.eval()(x, edge_index)
    act.train()(x, edge_index)
    act.eval()(x, edge_index)
    act.load_state_dict(GReLU(4, track_running_stats=True).state_dict())
    with pytest.raises(RuntimeError, match=never):
        act(x, edge_index)
    act.train()(x, edge_index)
    act.eval()(x, edge_index)
    act.reset_parameters()
    with pytest.raises(RuntimeError, match=never):
        act(x, edge_index)
    for momentum in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"momentum must be in \(0, 1\] or None, got"):
            GReLU(4, track_running_stats=True, momentum=momentum)


@pytest.mark.parametrize("form", [{}, *CONSTANTS], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_reference_backend(training: bool, form: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    act = tracked(**form)
    act(features(6), random_graph(6, 12))
    twin = copy.deepcopy(act.train(training))
    x, edge_index = features(7), random_graph(7, 12)
    out = act(x, edge_index)
    monkeypatch.setenv("GRAPHRELU_BACKEND", "reference")
    assert_close(twin(x, edge_index), out)
    for a, b in zip(twin.buffers(), act.buffers(), strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("mode", MODES)
def test_outliers(mode: str) -> None:
    """A node far from all that the statistics have seen: no overflow, in both passes."""
    act = GReLU(4, mode=mode, topology=False, track_running_stats=True)
    act(torch.zeros(5, 4), random_graph(5, 9))
    x = torch.full((2, 4), 1e4).mul(act.node_mlp.first.weight.detach().sign()).requires_grad_()
    out = opened(act).eval()(x, random_graph(2, 3))
    largest = 1.0 if mode == "paper" else act.gamma_max
    assert_close(act.gamma(x, random_graph(2, 3)), torch.full((2, 1), largest), 1e-6)
    assert all(bool(grad.isfinite().all()) for grad in gradients(out, [x, *act.parameters()]))
    act.train()(x, random_graph(2, 3))
    assert all(bool(buffer.isfinite().all()) for buffer in act.buffers())


@pytest.mark.parametrize(("variant", "form"), [("A", {}), ("G", {}), ("A", FULL)], ids=str)
def test_compile(variant: str, form: dict) -> None:
    torch.compiler.reset()
    act = tracked(variant, **form)
    twin = copy.deepcopy(act)
    compiled = torch.compile(twin, fullgraph=True)
    x, edge_index = features(9).requires_grad_(), random_graph(9, 20)
    for training in (True, True, False):
        act.train(training)
        twin.train(training)
        out, expected = compiled(x, edge_index), act(x, edge_index)
        assert_close(out, expected)
        inputs = ([x, *act.parameters()], [x, *twin.parameters()])
        for a, b in zip(gradients(expected, inputs[0]), gradients(out, inputs[1]), strict=True):
            assert_close(a, b)
    for a, b in zip(twin.buffers(), act.buffers(), strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("form", [{}, *CONSTANTS], ids=str)
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


def test_random_node_loader() -> None:
    data = Data(x=features(30), edge_index=random_graph(30, 90))
    act = tracked()
    for part in RandomNodeLoader(data, num_parts=5, shuffle=True):
        assert act(part.x, part.edge_index).shape == part.x.shape
    assert int(statistics(act).num_batches_tracked) == 5
    assert bool(act.eval()(data.x, data.edge_index).isfinite().all())


def test_loader_of_graphs() -> None:
    """Every graph is its own context, alone or in a batch of any size."""
    graphs = [Data(x=features(n), edge_index=random_graph(n, 3 * n)) for n in (4, 7, 2, 5)]
    act = opened(GReLU(4)).double()
    alone = torch.cat([act(graph.x, graph.edge_index) for graph in graphs])
    for batch_size in (1, 3, 4):
        parts = [
            act(part.x, part.edge_index, batch=part.batch, batch_size=part.num_graphs)
            for part in DataLoader(graphs, batch_size)
        ]
        assert_close(torch.cat(parts), alone)
