"""PyG's own models, converted: the same numbers, other parameters."""

import copy
import io
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch_geometric.nn import GAT, GCN, GIN, PNA, EdgeCNN, GraphSAGE

from graphrelu import GReLU, convert, replacements
from graphrelu.lab.data import load
from graphrelu.lab.data.splits import make_split
from tests.helpers import opened, random_graph

MODELS = [GCN, GraphSAGE, GAT, GIN, PNA, EdgeCNN]
OPTIONS: dict[Any, dict[str, Any]] = {
    GAT: {"heads": 2},
    PNA: {
        "aggregators": ["mean", "max"],
        "scalers": ["identity", "amplification"],
        "deg": torch.tensor([1, 5, 10, 8]),
    },
}
X, EDGES = torch.randn(30, 5, generator=torch.Generator().manual_seed(1)), random_graph(30, 90)


def make(kind: Any, **options: Any) -> torch.nn.Module:
    return kind(5, 8, 3, out_channels=4, **OPTIONS.get(kind, {}), **options)


def grelus(model: torch.nn.Module) -> list[GReLU]:
    return [module for module in model.modules() if isinstance(module, GReLU)]


def assert_same_output(model: torch.nn.Module, converted: torch.nn.Module, *args: Any) -> None:
    for training in (True, False):
        outs = []
        for m in (model, converted):
            torch.manual_seed(7)
            outs.append(m.train(training)(*args))
        assert torch.equal(*outs)


@pytest.mark.parametrize("jk", [None, "last", "cat", "max"])
@pytest.mark.parametrize("kind", MODELS)
def test_models(kind: Any, jk: str | None) -> None:
    model = make(kind, jk=jk, dropout=0.3, norm="batch_norm")
    converted = convert(model)
    assert_same_output(model, converted, X, EDGES)
    assert isinstance(converted, kind)
    assert repr(converted) == repr(model)
    assert not grelus(model)

    acts = grelus(converted)
    assert len(acts) == (2 if jk is None else 3)
    for act in acts:
        opened(act)
    converted.train()(X, EDGES).pow(2).sum().backward()
    for act in acts:
        assert all(p.grad is not None and bool(p.grad.any()) for p in act.parameters())
    assert len({id(p) for act in acts for p in act.parameters()}) == 3 * len(acts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("act", "options"),
    [("relu", {}), ("leaky_relu", {"negative_slope": 0.2}), ("prelu", {"init": 0.237})],
)
@pytest.mark.parametrize("act_first", [False, True])
def test_slopes_and_types(
    act: str, options: dict[str, float], dtype: torch.dtype, act_first: bool
) -> None:
    model = GCN(
        5, 8, 3, act=act, act_kwargs=options, act_first=act_first, norm="layer_norm", dropout=0.2
    ).to(dtype)
    converted = convert(model)
    assert_same_output(model, converted, X.to(dtype), EDGES)
    (slope,) = options.values() if options else (0.0,)
    for grelu in grelus(converted):
        assert grelu.negative_slope == pytest.approx(slope, rel=1e-2)
        assert all(p.dtype == dtype for p in grelu.parameters())


def test_networks_in_gin_stay() -> None:
    # PyG hands one object to all of them.
    model = GIN(5, 8, 2, act=torch.nn.PReLU())
    converted = convert(model)
    assert_same_output(model, converted, X, EDGES)
    left = [r.name for r in replacements(converted).left]
    assert left == ["convs.0.nn.act", "convs.1.nn.act"]
    assert converted.convs[0].nn.act is converted.convs[1].nn.act


def test_functions_as_activation() -> None:
    model = GCN(5, 8, 2, act=torch.relu)
    for converted in (convert(model), convert(model, example=(X, EDGES))):
        assert_same_output(model, converted, X, EDGES)
        assert len(grelus(converted)) == 1


def test_activations_see_the_graph_of_their_layer() -> None:
    model = GCN(5, 8, 3, out_channels=4).eval()
    converted = convert(model, alpha=0.3, K=3)
    acts = [opened(act) for act in grelus(converted)]
    assert [(act.alpha, act.K) for act in acts] == [(0.3, 3)] * 2
    weight = torch.rand(90)

    x = acts[0](model.convs[0](X, EDGES, weight), EDGES, weight)
    x = acts[1](model.convs[1](x, EDGES, weight), EDGES, weight)
    assert torch.equal(converted(X, EDGES, weight), model.convs[2](x, EDGES, weight))
    assert torch.equal(
        converted(X, edge_weight=weight, edge_index=EDGES), converted(X, EDGES, weight)
    )


@pytest.mark.parametrize("kind", MODELS)
def test_pickle_copy_and_state(kind: Any) -> None:
    converted = convert(make(kind))
    for act in grelus(converted):
        opened(act)
    expected = converted(X, EDGES)
    file = io.BytesIO()
    torch.save(converted, file)
    file.seek(0)
    others = [
        pickle.loads(pickle.dumps(converted)),
        copy.deepcopy(converted),
        torch.load(file, weights_only=False),
        convert(make(kind)),
    ]
    others[-1].load_state_dict(converted.state_dict())
    for other in others:
        assert isinstance(other, kind)
        assert torch.equal(other(X, EDGES), expected)
        assert len(replacements(other).changed) == 2
        with torch.no_grad():
            grelus(other)[0].channel_mlp.bias.fill_(0.1)
        assert not torch.equal(other(X, EDGES), expected)
    assert torch.equal(converted(X, EDGES), expected)


# The compiler's own, where the filters turn it into an error: it looks at a hook's arguments.
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
@pytest.mark.parametrize("kind", MODELS)
def test_compile(kind: Any) -> None:
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    converted = convert(kind(5, 8, 2, **OPTIONS.get(kind, {}), jk="last"))
    for act in grelus(converted):
        opened(act)
    compiled = torch.compile(converted, fullgraph=True, backend=counter)
    for edge_index in (EDGES, EDGES.flip(0), random_graph(30, 90)):
        out = compiled(X, edge_index)
        torch.testing.assert_close(out, converted(X, edge_index), atol=1e-5, rtol=1e-4)
    assert counter.frame_count == 1
    out.pow(2).sum().backward()
    acts = grelus(converted)
    assert acts
    assert all(bool(p.grad.any()) for act in acts for p in act.parameters())


def test_reset_parameters() -> None:
    converted = convert(make(GCN, norm="batch_norm"))
    for act in grelus(converted):
        opened(act)
    before = copy.deepcopy(converted)
    converted.reset_parameters()
    for act in grelus(converted):
        assert not any(bool(p.any()) for p in act.channel_mlp.parameters())
    assert not torch.equal(converted.convs[0].lin.weight, before.convs[0].lin.weight)


def test_in_place() -> None:
    model = make(GCN)
    expected, parameters = model(X, EDGES), dict(model.named_parameters())
    assert convert(model, inplace=True) is model
    assert torch.equal(model(X, EDGES), expected)
    assert len(grelus(model)) == 2
    now = dict(model.named_parameters())
    assert all(now[name] is parameter for name, parameter in parameters.items())
    assert torch.equal(pickle.loads(pickle.dumps(model))(X, EDGES), expected)


def test_a_failed_conversion_leaves_the_model_alone() -> None:
    model = make(GCN, act="gelu")
    before = str(model.state_dict()), set(vars(model)), model(X, EDGES)
    with pytest.raises(ValueError, match="no GReLU equals it; force=True"):
        convert(model, inplace=True)
    assert (str(model.state_dict()), set(vars(model))) == before[:2]
    assert torch.equal(model(X, EDGES), before[2])
    assert not model._forward_pre_hooks


def test_force() -> None:
    model = make(GCN, act="gelu")
    converted = convert(model, force=True)
    assert len(grelus(converted)) == 2
    assert not torch.equal(converted(X, EDGES), model(X, EDGES))
    assert grelus(convert(make(GCN), force=True, mode="paper"))[0].mode == "paper"
    assert grelus(convert(make(GCN), force=True, K=1))[0].K == 1


def test_lazy_sizes() -> None:
    model = GCN(-1, 8, 2, out_channels=4)
    converted = convert(model)
    converted(X, EDGES)
    model.load_state_dict(converted.state_dict(), strict=False)
    assert torch.equal(model(X, EDGES), converted(X, EDGES))


def test_the_documentation_shows_what_happens(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parent.parent / "docs" / "convert.md").read_text()
    code, output = re.findall(r"```(?:python)?\n(.*?)```", text, re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == output


@pytest.mark.parametrize("kind", MODELS)
def test_training_goes_on(kind: Any) -> None:
    graph = load("digits")
    options = dict(OPTIONS.get(kind, {}))
    if kind is PNA:
        options |= {"aggregators": ["mean"], "scalers": ["identity"]}
    width = 8 if kind is PNA else 16  # it takes the most time
    accuracies = []
    split = make_split(graph, 0)
    torch.manual_seed(0)
    model = kind(graph.num_features, width, 2, graph.num_classes, **options)
    for net in (model, convert(model)):
        torch.manual_seed(1)
        accuracies.append(_accuracy_after_training(net, graph, split))
    assert min(accuracies) > 0.7, accuracies  # one run each tells no more


def _accuracy_after_training(net: torch.nn.Module, graph: Any, split: Any) -> float:
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(50):
        optimizer.zero_grad()
        out: Tensor = net(graph.x, graph.edge_index)
        F.cross_entropy(out[split.train], graph.y[split.train]).backward()
        optimizer.step()
    assert all(bool(act.channel_mlp.weight.any()) for act in grelus(net))
    with torch.no_grad():
        out = net.eval()(graph.x, graph.edge_index)
    return float((out[split.test].argmax(dim=1) == graph.y[split.test]).float().mean())
