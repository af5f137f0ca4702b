"""A converted model is a module like any other: saved, copied, compiled, reset, trained."""

import copy
import io
import multiprocessing
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.parallel import DistributedDataParallel
from torch_geometric import nn as gnn
from torch_geometric.nn import GCN, GIN

from graphrelu import conversion, convert, replacements
from tests.conversion import models
from tests.conversion.models import (
    BATCH,
    BATCHED,
    BATCHES,
    CASES,
    EDGES,
    PLAIN,
    WEIGHT,
    Case,
    CoraGCN,
    X,
)
from tests.conversion.test_graphs import opened_model
from tests.conversion.test_table import assert_same, grelus
from tests.helpers import random_graph

MODELS = ["GCN", "GAT, JumpingKnowledge", "GraphUNet", "one module, many places", "nested models"]
MODELS += ["Sequential", "GPSConv", "MLPs of nodes"]


@pytest.mark.parametrize("name", MODELS)
def test_copy_pickle_and_state(name: str) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    model = case.build()
    converted = opened_model(model, example=case.example)
    args = case.inputs[0]
    expected = converted(*args)
    file = io.BytesIO()
    torch.save(converted, file)
    file.seek(0)
    loaded = convert(model, example=case.example).eval()
    assert not torch.equal(loaded(*args), expected)
    loaded.load_state_dict(converted.state_dict())
    twice = copy.deepcopy(copy.deepcopy(converted))
    saved = torch.load(file, weights_only=False)
    for other in (loaded, twice, saved, pickle.loads(pickle.dumps(converted))):
        assert torch.equal(other(*args), expected)
        assert replacements(other) == replacements(converted)
        with torch.no_grad():
            grelus(other)[0].channel_mlp.bias.add_(0.1)
        assert not torch.equal(other(*args), expected)
    assert torch.equal(converted(*args), expected)
    assert set(model.state_dict()) < set(converted.state_dict())


SCRIPT = """
Sequential("x, edge_index", [
    (Sequential("x, edge_index", [(GCNConv(5, 8), "x, edge_index -> x"), ReLU()]),
     "x, edge_index -> x"),
    (Sequential("x", [(Linear(8, 8), "x -> x"), ReLU(), Linear(8, 3)]), "x -> x"),
])"""


def test_several_sequentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writes a forward, which imports the file that it is from, for itself and the class."""
    monkeypatch.setattr(gnn.Sequential, "forward", gnn.Sequential.forward)
    model = eval(compile(SCRIPT.strip(), "math.py", "eval"), {**vars(torch.nn), **vars(gnn)})
    converted = opened_model(model)
    assert_same(model, convert(model), Case(CoraGCN, PLAIN))
    for other in (copy.deepcopy(converted), pickle.loads(pickle.dumps(converted))):
        assert torch.equal(other(X, EDGES), converted(X, EDGES))
    assert [r.name for r in replacements(converted)] == [
        "module_0.module_1 after module_0.module_0",
        "module_1.module_1 after module_1.module_0",
    ]


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_compile_modules() -> None:
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    converted = opened_model(CASES["asks for its class"].build())
    compiled = torch.compile(converted, fullgraph=True, backend=counter)
    for edge_index in (EDGES, random_graph(30, 90)):
        out = compiled(X, edge_index)
        torch.testing.assert_close(out, converted(X, edge_index), atol=1e-5, rtol=1e-4)
    assert counter.frame_count == 1
    out.pow(2).sum().backward()
    assert all(bool(p.grad.any()) for act in grelus(converted) for p in act.parameters())


def test_export() -> None:
    converted = opened_model(GCN(5, 8, 3, 4))
    exported = torch.export.export(converted, (X, EDGES)).module()
    torch.testing.assert_close(exported(X, EDGES), converted(X, EDGES), atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_a_compiled_part_of_a_model_sees_its_batch() -> None:
    torch.compiler.reset()

    class Batched(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = GCN(5, 8, 2)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return self.encoder(x, edge_index)

    converted = opened_model(Batched())
    expected = converted(X, BATCHED, BATCH)
    assert not torch.allclose(expected, converted(X, BATCHED, BATCH.clamp(max=0)), atol=1e-3)
    converted.encoder.compile(backend="aot_eager")
    torch.testing.assert_close(converted(X, BATCHED, BATCH), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_compile_functions() -> None:
    torch.compiler.reset()
    converted = opened_model(CASES["edge_weight is None"].build(), example=[PLAIN[0]])
    compiled = torch.compile(converted, backend="aot_eager")
    assert torch.equal(compiled(X, EDGES), converted(X, EDGES))
    with pytest.warns(UserWarning, match="was not reached"):
        assert torch.equal(compiled(X, EDGES, WEIGHT), converted(X, EDGES, WEIGHT))


def test_nothing_is_intercepted_where_only_modules_were_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules, functions = convert(GCN(5, 8, 3, 4)), convert(CoraGCN())
    monkeypatch.setattr(conversion, "Interceptor", None)
    modules(X, EDGES)
    with pytest.raises(TypeError, match="not callable"):
        functions(X, EDGES)


def test_reset_parameters() -> None:
    for converted, args in (
        (opened_model(GCN(5, 8, 3, 4, norm="batch_norm")), PLAIN[0]),
        (opened_model(models.sequential()), BATCHES[0]),
    ):
        before = copy.deepcopy(converted)
        converted.reset_parameters()
        for act in grelus(converted):
            assert not any(bool(p.any()) for p in act.channel_mlp.parameters())
        assert not torch.equal(converted(*args), before(*args))


def test_in_place() -> None:
    model = GCN(5, 8, 3, 4)
    expected, parameters = model(X, EDGES), dict(model.named_parameters())
    assert convert(model, inplace=True) is model
    assert torch.equal(model(X, EDGES), expected)
    now = dict(model.named_parameters())
    assert all(now[name] is parameter for name, parameter in parameters.items())
    assert len(grelus(model)) == 2
    assert type(model) is GCN


def test_lazy_sizes() -> None:
    model = GCN(-1, 8, 2, 4)
    converted = convert(model)
    converted(X, EDGES)
    model.load_state_dict(converted.state_dict(), strict=False)
    assert torch.equal(model(X, EDGES), converted(X, EDGES))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_types_zero_weights_and_small_graphs(dtype: torch.dtype) -> None:
    weight, nothing = WEIGHT * (WEIGHT > 0.3), torch.zeros(2, 0, dtype=torch.long)
    x, weight = X.to(dtype), weight.to(dtype)
    inputs = [(x, EDGES, weight), (x[:1], nothing), (x[:0], nothing), (x, nothing)]
    for model in (GCN(5, 8, 2, 4, act="leaky_relu"), CoraGCN()):
        converted = convert(model.to(dtype))
        assert_same(model, converted, Case(CoraGCN, inputs))
        assert all(p.dtype == dtype for p in converted.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outs = [m.eval().float()(X, EDGES) for m in (model, converted)]
    assert torch.equal(*outs)


def test_methods_that_are_not_forward() -> None:
    model = opened_model(models.LinkPrediction(), example=lambda m: m.encode(X, EDGES))
    (act,) = grelus(model)
    z = model.conv2(act(model.conv1(X, EDGES), EDGES), EDGES)
    assert torch.equal(model.encode(X, EDGES), z)
    assert torch.equal(model.decode(z, EDGES), (z[EDGES[0]] * z[EDGES[1]]).sum(dim=-1))


def test_shared_modules_have_a_grelu_for_each_place() -> None:
    model = opened_model(models.SharedModule())
    places = ["relu after conv1", "relu after lin2", "relu after norm"]
    assert [r.name for r in replacements(model).changed] == places
    gin = opened_model(GIN(5, 8, 2, 4))  # which has the same module in its layers' networks
    assert [r.name for r in replacements(gin)] == ["act after convs.0"]


def test_lightning() -> None:
    pytorch_lightning = pytest.importorskip("pytorch_lightning")
    from pytorch_lightning.utilities.model_helpers import is_overridden

    converted = opened_model(models.lightning())
    (act,) = grelus(converted)
    hidden = act(converted.conv1(X, EDGES), EDGES)
    expected = converted.conv2(hidden, EDGES).pow(2).mean()
    assert torch.equal(converted.training_step((X, EDGES), 0), expected)
    assert is_overridden("training_step", converted, pytorch_lightning.LightningModule)
    assert not is_overridden("validation_step", converted, pytorch_lightning.LightningModule)
    assert isinstance(converted.configure_optimizers(), torch.optim.Adam)


def in_a_group(store: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    for model in (GCN(5, 8, 2, 4), CoraGCN()):
        converted = opened_model(model)
        wrapped = DistributedDataParallel(converted)
        out = wrapped(X, EDGES)
        assert torch.equal(out, converted(X, EDGES))
        out.pow(2).sum().backward()
        assert all(bool(p.grad.any()) for act in grelus(converted) for p in act.parameters())
        with pytest.raises(ValueError, match="must not be compiled or wrapped yet, got a Distr"):
            convert(wrapped)
    torch.distributed.destroy_process_group()


def test_distributed(tmp_path: Path) -> None:
    """In a process of its own: what other tests have started may keep the group waiting."""
    arguments = (f"file://{tmp_path / 'store'}",)
    process = multiprocessing.get_context("spawn").Process(target=in_a_group, args=arguments)
    process.start()
    process.join(120)
    process.kill()
    assert process.exitcode == 0
