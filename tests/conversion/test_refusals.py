"""What is not converted, and the sentence that says so."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import (
    GCN,
    MLP,
    GCNConv,
    GINConv,
    HeteroConv,
    SAGEConv,
    global_mean_pool,
    to_hetero,
)

from graphrelu import GReLU, convert, replacements
from tests.conversion.models import EDGES, Base, LinkPrediction, X
from tests.conversion.test_table import grelus


def gcn(**options: Any) -> Any:
    return GCN(5, 8, 2, **options)


class Head(Base):
    """Its only activation comes after a pooling."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.lin2(global_mean_pool(self.conv1(x, edge_index), batch)).relu()


class OtherArguments(Base):
    def forward(self, x: Tensor, edge_index: Tensor, pos: Tensor) -> Tensor:
        return self.conv1(x, edge_index).relu() * pos


class Itself(torch.nn.Sequential):
    """Its children are its layers."""

    def __init__(self) -> None:
        super().__init__(GCNConv(5, 8), torch.nn.ReLU(), GCNConv(8, 8))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        for layer in self:
            x = layer(x, edge_index) if isinstance(layer, GCNConv) else layer(x)
        return x


class Taken(OtherArguments):
    grelus = 3


@pytest.mark.parametrize(
    ("error", "message", "model", "options"),
    [
        (TypeError, r"model must be a torch\.nn\.Module, got str", "GCN", {}),
        (ValueError, r"got MLP: act after norms.*no graph with a n", MLP([5, 8, 2]), {}),
        (ValueError, r"must have an activation .*: it calls none", gcn(act=None), {}),
        (ValueError, r"act after convs\.0: ELU.* which no GReLU starts as", gcn(act="elu"), {}),
        (ValueError, r"it sees \[3, 8\] where the graph has 13 nodes", Head(), {}),
        (ValueError, "model must not have GReLUs from convert", convert(gcn()), {}),
        (ValueError, "must not be compiled or wrapped yet", torch.compile(gcn()), {}),
        (
            ValueError,
            "compiled or wrapped yet, got a Recurs",
            torch.jit.script(torch.nn.ReLU()),
            {},
        ),
        (ValueError, "example must be given", torch.nn.ReLU(), {}),
        (ValueError, "one type of nodes", HeteroConv({("a", "to", "a"): GCNConv(5, 8)}), {}),
        (ValueError, "nor an attribute grelus, got a Taken", Taken(), {}),
        (ValueError, r"example must be given.*raises TypeError.*'pos'", OtherArguments(), {}),
        (ValueError, r"example must be given.*it raises NotImplemented", LinkPrediction(), {}),
        (TypeError, "example must be a Data object, a tuple", gcn(), {"example": 3}),
        (ValueError, "and K not 1, as a fresh GReLU is then not ReLU", gcn(), {"K": 1}),
        (ValueError, "mode must not be 'paper'", gcn(), {"mode": "paper"}),
        (ValueError, "alpha must be in", gcn(), {"alpha": 2.0}),
        (TypeError, "unexpected keyword argument 'beta'", gcn(), {"beta": 2.0}),
        (TypeError, "multiple values for .*'negative_slope'", gcn(), {"negative_slope": 0.1}),
        (TypeError, "multiple values for .*'channels'", gcn(), {"channels": 8}),
        (ValueError, "must be among .*, got 'swish'", gcn(), {"activations": ["swish"]}),
        (ValueError, "negative_slope must be at most 1", gcn(act=torch.nn.LeakyReLU(1.5)), {}),
        (ValueError, "its Itself would take the GReLU for one of its layers", Itself(), {}),
        (ValueError, "exclude must name modules of .*, got 'b'", gcn(), {"exclude": ["b"]}),
        (ValueError, r"act .*: ReLU\(\) stays: it is excluded", gcn(), {"exclude": ["act"]}),
    ],
)
def test_what_cannot_be_converted(
    error: type[Exception], message: str, model: Any, options: dict[str, Any]
) -> None:
    before = copy.deepcopy(model)
    with pytest.raises(error, match=message) as caught:
        convert(model, inplace=True, **options)
    assert "\n" not in str(caught.value)
    assert str(model) == str(before)
    assert type(model) is type(before)


def test_an_error_of_the_model_is_its_own() -> None:
    model = gcn()
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        convert(model, example=(torch.randn(30, 4), EDGES))
    assert "forward" not in vars(model)
    with pytest.raises(ValueError, match="model must be a converted one"):
        replacements(model)


def test_exclusion_of_modules_and_places() -> None:
    model = GCN(5, 8, 3, act=torch.relu)
    names = [r.name for r in replacements(convert(model))]
    converted = convert(model, exclude=names[:1])
    assert [r.name for r in replacements(converted).changed] == names[1:]
    assert torch.equal(model(X, EDGES), converted(X, EDGES))

    class Both(torch.nn.ModuleDict):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self["a"](x, edge_index) + self["b"](x, edge_index)

    converted = convert(Both({"a": gcn(), "b": gcn()}), exclude=["a"])
    assert [r.name for r in replacements(converted).changed] == ["b.act after b.convs.0"]


def test_all_that_stays_is_listed() -> None:
    class Many(Base):
        def __init__(self) -> None:
            super().__init__()
            self.gin = GINConv(torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU()))
            self.leaky, self.unused = torch.nn.LeakyReLU(0.3), torch.nn.LeakyReLU(0.2)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.leaky(self.gin(x, edge_index))

    converted = convert(Many(), example=(X, EDGES))
    assert [str(replacement) for replacement in replacements(converted).left] == [
        "gin.nn.1: ReLU() stays: it is a part of gin, a GINConv",
        "unused: LeakyReLU(negative_slope=0.2) stays: the run on the example does not call it",
    ]
    (changed,) = replacements(converted).changed
    assert changed.after == "GReLU(8, negative_slope=0.3)"


class Layer(torch.nn.Module):
    def __init__(self, act: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.conv, self.act = SAGEConv((-1, -1), 8), act

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv(x, edge_index).relu()
        return x if self.act is None else self.act(x, edge_index)


def test_several_types_of_nodes() -> None:
    metadata = (["a", "b"], [("a", "to", "b"), ("b", "to", "a")])
    x = {"a": X, "b": X[:20]}
    edge_index = dict.fromkeys(metadata[1], EDGES % 20)
    with pytest.raises(TypeError, match=r"must belong to one node type: HeteroGReLU takes several"):
        to_hetero(Layer(GReLU(8)), metadata)(x, edge_index)
    with pytest.raises(ValueError, match="one type of nodes and not traced, got a GraphModule"):
        convert(to_hetero(Layer(), metadata))
    converted = convert(Layer(), example=(X, EDGES))
    for trace in (lambda m: to_hetero(m, metadata), torch.fx.symbolic_trace):
        with pytest.raises(ValueError, match=r"cannot be traced, as by torch\.fx and to_hetero"):
            trace(converted)


def test_smooth_activations_when_asked() -> None:
    model = gcn(act="elu").eval()
    converted = convert(model, activations=["elu"])
    assert len(grelus(converted)) == 1
    assert not torch.equal(converted(X, EDGES), model(X, EDGES))
