"""The deep networks: prepared as in PyG's own form, alone as under vmap."""

from typing import Any

import pytest
import torch
from torch.nn import BatchNorm1d, LayerNorm, Linear
from torch_geometric.nn import APPNP, GATConv, GINConv
from torch_geometric.utils import add_remaining_self_loops

from graphrelu.lab.models.backbones import DEEP_BACKBONES, DeepGNN
from tests.helpers import assert_close
from tests.lab.models.test_backbones import (
    CLASSES,
    FEATURES,
    NODES,
    HashDropout,
    assert_alone_as_together,
    assert_reset_leaves_nothing,
    assert_same,
    graph_and_features,
)

OPTIONS: dict[str, dict[str, Any]] = {
    "gat": {"heads": 2},
    "cheb": {"K": 3},
    "arma": {"num_stacks": 3, "skip_dropout": 0.3},
    "appnp": {"K": 4, "alpha": 0.2},
}


def model_of(backbone: str, activation: str = "relu", **options: Any) -> DeepGNN:
    options = {"layers": 3, **OPTIONS.get(backbone, {}), **options}
    model = DeepGNN(backbone, FEATURES, 4, CLASSES, activation, **options).double()
    with torch.no_grad():  # leave the zeros of fresh biases and gates
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("norm", [None, "layer", "batch"])
@pytest.mark.parametrize("backbone", list(DEEP_BACKBONES))
def test_prepared_equals_pyg(backbone: str, norm: str | None, residual: bool) -> None:
    for density, weighted, linear_first in ((0.05, False, False), (0.8, True, True)):
        x, edge_index, edge_weight = graph_and_features(density)
        weight = edge_weight if weighted else None
        model = model_of(backbone, norm=norm, residual=residual, linear_first=linear_first)
        expected = model.eval()(x, edge_index, weight)
        assert expected.shape == (NODES, CLASSES)
        assert_same(model, model(model.prepare(x, edge_index, weight)), expected)


def test_a_node_is_its_own_neighbour() -> None:
    x, edge_index, _ = graph_and_features(0.05)
    model, other = model_of("sage", add_self_loops=True).eval(), model_of("sage").eval()
    other.load_state_dict(model.state_dict())
    looped, _ = add_remaining_self_loops(edge_index, num_nodes=NODES)
    expected = model(x, edge_index)
    assert_close(expected, other(x, looped))
    assert_same(model, model(model.prepare(x, edge_index)), expected)


def test_by_hand() -> None:
    """Convolution plus skip, norm, activation, dropout, layer by layer; then the head."""
    x, edge_index, _ = graph_and_features(0.8)
    model = model_of("gcn", "prelu", norm="layer", residual=True, linear_first=True)
    with HashDropout(torch.tensor(1)) as mode:
        out = model(x, edge_index)
    assert mode.calls == [((NODES, 4), 0.5)] * 4  # the projected features, and three layers
    assert isinstance(model.first, Linear)
    with HashDropout(torch.tensor(1)):
        h = torch.nn.functional.dropout(model.first(x), p=0.5, training=True)
        for conv, skip, norm, act in zip(
            model.convs, model.skips, model.norms, model.acts, strict=True
        ):
            h = act(norm(conv(h, edge_index) + skip(h)))
            h = torch.nn.functional.dropout(h, p=0.5, training=True)
    assert_close(out, model.head(h))


@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("activation", ["relu", "grelu"])
@pytest.mark.parametrize("backbone", list(DEEP_BACKBONES))
def test_many_models_at_once(backbone: str, activation: str, norm: str) -> None:
    x, edge_index, _ = graph_and_features(0.05)
    options = {"norm": norm, "residual": True, "linear_first": norm == "batch"}
    models = [model_of(backbone, activation, **options) for _ in range(2)]
    assert_alone_as_together(models, models[0].prepare(x, edge_index))


def test_batch_norm_takes_all_nodes_in_evaluation_as_well() -> None:
    x, edge_index, _ = graph_and_features(0.8)
    model = model_of("gcn", norm="batch", dropout=0.0)
    assert_close(model.train()(x, edge_index), model.eval()(x, edge_index))


@pytest.mark.parametrize("backbone", list(DEEP_BACKBONES))
def test_reset_leaves_nothing(backbone: str) -> None:
    model = model_of(backbone, "maxout", norm="layer", residual=True, linear_first=True)
    assert_reset_leaves_nothing(model)


def test_layers() -> None:
    model = DeepGNN("gat", 10, 16, 3, "prelu", layers=2, norm="batch")
    assert [type(norm) for norm in model.norms] == [BatchNorm1d] * 2
    for conv, width in zip(model.convs, (10, 16), strict=True):
        assert isinstance(conv, GATConv)
        assert (conv.in_channels, conv.heads, conv.out_channels, conv.concat) == (width, 8, 2, True)
    assert len({id(p) for act in model.acts for p in act.parameters()}) == 2
    model = DeepGNN("gin", 10, 16, 3, layers=1, norm="layer", linear_first=True)
    assert isinstance(model.convs[0], GINConv)
    assert isinstance(model.norms[0], LayerNorm)
    assert [module.in_features for module in model.convs[0].nn if isinstance(module, Linear)] == [
        16,
        16,
    ]
    model = DeepGNN("appnp", 10, 4, 3)
    assert isinstance(model.propagation, APPNP)
    assert [type(conv) for conv in model.convs] == [Linear] * 4
    assert str(DeepGNN("gcn", 10, 4, 3, norm="layer")) == (
        "DeepGNN(gcn, 10, 4, 3, activation=relu, dropout=0.5, layers=4, norm=layer, "
        "residual=False, linear_first=False)"
    )


@pytest.mark.parametrize(
    ("backbone", "options", "message"),
    [
        ("sgc", {}, "backbone must be one of gcn, .*, appnp, got 'sgc'"),
        ("gcn", {"layers": 0}, "layers must be a whole number from 1, got 0."),
        ("gcn", {"norm": "layers"}, "norm must be one of layer, batch, got 'layers'; did you"),
        ("gcn", {"heads": 2}, "options of backbone 'gcn' must be left out, got 'heads'."),
        ("gat", {"heads": 3}, r"hidden_channels must be a multiple of heads \(3\), got 4."),
    ],
)
def test_errors(backbone: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        DeepGNN(backbone, 10, 4, 3, **options)
    assert str(caught.value).count("\n") == 0
