"""One table of hyperparameters, the same for every activation."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, product
from typing import Any

import pytest

from graphrelu import GReLU
from graphrelu.lab.models.activations import ACTIVATIONS as CLASSES
from graphrelu.lab.record.config import CONSTANTS, Config
from graphrelu.lab.record.recipes import (
    ACTIVATIONS,
    BACKBONES,
    NODE_DATASETS,
    ON_REQUEST,
    TABLE,
    graph_cell,
    modern,
    node_table,
    on_sets,
    recipe,
)


def numbers(config: Config) -> tuple[Any, ...]:
    return (
        *(config.hidden, config.epochs, config.patience),
        *(config.lr, config.weight_decay, config.dropout),
        dict(config.backbone_options),
    )


def plain(cell: Config) -> Config:
    """What must be the same for all activations."""
    return replace(cell, activation="any", activation_options=())


def test_every_activation_gets_the_same_hyperparameters() -> None:
    for cell in product((*NODE_DATASETS, "mine.npz"), BACKBONES):
        assert len({plain(recipe(*cell, name)) for name in ACTIVATIONS}) == 1
    for make in (modern, on_sets):
        assert len({plain(make("mine.npz", "sage", name)) for name in CLASSES}) == 1


def test_grelus_constants_are_spelled_out() -> None:
    """With few labels, under full supervision, and none in the printed form."""
    few = dict(recipe("cora", "gcn", "grelu").activation_options)
    assert few == {"dropout": 0.2, "scale": 8.0, "temperature": 3.0}
    for deep in (modern("mine.npz", "gcn", "grelu"), graph_cell("mutag", "gin", "grelu")):
        assert dict(deep.activation_options) == CONSTANTS
    assert all(getattr(GReLU(4), name) == value for name, value in CONSTANTS.items())
    printed = recipe("cora", "gcn", "grelu", activation_options={"mode": "paper"})
    assert dict(printed.activation_options) == {"mode": "paper"}
    assert recipe("cora", "gcn", "relu").activation_options == ()


def test_the_main_table() -> None:
    table = node_table()
    assert len(table) == len({cell.key() for cell in table}) == 5 * 6 * 6
    assert [dataset for dataset, _ in groupby(cell.dataset for cell in table)] == [*NODE_DATASETS]
    assert {*ACTIVATIONS, *ON_REQUEST} < set(CLASSES)
    part = node_table(["Flickr"], ["GCN", "sgc"], ["ReLU", "grelu"])
    cells = [f"{cell.dataset} {cell.backbone} {cell.activation}" for cell in part]
    assert cells == ["flickr gcn relu", "flickr gcn grelu", "flickr sgc none"]


def test_other_graphs_use_the_last_columns() -> None:
    mine = recipe("mine.npz", "gat", "relu")
    assert numbers(mine) == numbers(recipe("flickr", "gat", "relu"))
    assert not mine.normalize_features
    papers = recipe("pyg:CitationFull/DBLP", "cheb", "relu")
    assert numbers(papers) == numbers(recipe("pubmed", "cheb", "relu"))
    assert papers.normalize_features
    assert recipe("Cora", "gcn", "relu").dataset == "cora"


def test_overrides() -> None:
    own: dict[str, Any] = {"hidden": 4, "metric": "f1", "backbone_options": {"heads": 2}}
    own |= {"activation_options": {"steps": 5}}
    before = recipe("cora", "gat", "grelu")
    changed = recipe("cora", "gat", "grelu", **own)
    assert dict(changed.backbone_options) == {"heads": 2, "output_heads": 1}
    assert changed.told_options == (("steps", 5),)
    differing = {name for name, value in vars(changed).items() if value != getattr(before, name)}
    assert differing == own.keys()
    assert dict(TABLE["gat"]["cora", "citeseer"].options) == {"heads": 8, "output_heads": 1}


def test_deep_networks() -> None:
    config = modern("mine.npz", "GCN", "gelu")
    assert (config.backbone, config.select, config.is_deep) == ("gcn", "score", True)
    network = {"layers": 4, "norm": "layer", "residual": True, "linear_first": False}
    assert numbers(config) == (64, 400, 0, 0.003, 0.0, 0.2, network)
    own: dict[str, Any] = {"layers": 2, "norm": None, "split": "full"}
    changed = modern("mine.npz", "gat", "grelu", backbone_options={"heads": 4}, **own)
    assert dict(changed.backbone_options) == network | {"layers": 2, "norm": None, "heads": 4}
    assert changed.split == "full"
    assert dict(modern("mine.npz", "gat", "relu").backbone_options) == network | {"heads": 8}


def test_networks_for_sets_of_graphs() -> None:
    config = on_sets("esol", "GINE", "relu")
    network = {"layers": 4, "norm": "batch", "residual": True, "pooling": "mean", "head_layers": 2}
    assert numbers(config) == (64, 100, 0, 0.001, 0.0, 0.0, network)
    assert (config.backbone, config.select, config.is_deep) == ("gine", "score", True)
    changed = on_sets("esol", "gcn", "relu", walks=8, lr=0.01, training_options={"batch_size": 16})
    assert dict(changed.backbone_options) == network | {"walks": 8}
    assert dict(changed.training_options) == {"batch_size": 16, "warmup": 5}


GCNN = (
    r"^There is no backbone 'gcnn' \(did you mean gcn\?\); choose from cheb, gcn, sage, gat, arma, "
    r"appnp, sgc\.$"
)


@pytest.mark.parametrize(
    ("cell", "settings", "sentence"),
    [
        (("gcnn", "relu"), {}, GCNN),
        (("gcn", "greul"), {}, r"no activation 'greul' \(did you mean grelu\?\)"),
        (("gcn", "zzz"), {}, "no activation 'zzz'; choose from relu, lrelu"),
        (("gcn", "relu"), {"epoch": 3}, r"no setting 'epoch' \(did you mean epochs"),
        (("sgc", "relu"), {}, "^sgc has no activation, so it takes none, not 'relu'"),
    ],
)
def test_unknown_names_suggest_the_nearest(cell: Any, settings: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        recipe("cora", *cell, **settings)
