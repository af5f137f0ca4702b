"""One table of hyperparameters, the same for every activation."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import groupby
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


ARMA_SHARED = {"num_layers": 1, "num_stacks": 3, "shared_weights": True, "skip_dropout": 0.75}
ARMA = {"num_layers": 1, "num_stacks": 2, "shared_weights": False, "skip_dropout": 0.5}


@pytest.mark.parametrize(
    ("dataset", "backbone", "expected"),
    [
        ("flickr", "gcn", (64, 300, 10, 0.01, 5e-4, 0.5, {})),
        ("pubmed", "sage", (16, 400, 10, 0.01, 5e-4, 0.5, {})),
        ("citeseer", "cheb", (16, 200, 10, 0.01, 5e-4, 0.5, {"K": 3})),
        ("flickr", "cheb", (64, 200, 10, 0.01, 5e-4, 0.5, {"K": 2})),
        ("flickr", "appnp", (64, 200, 10, 0.01, 5e-4, 0.5, {"K": 10, "alpha": 0.1})),
        ("citeseer", "arma", (16, 1000, 100, 0.01, 5e-4, 0.5, ARMA_SHARED)),
        ("blogcatalog", "arma", (64, 1000, 100, 0.01, 5e-4, 0.5, ARMA)),
        ("cora", "gat", (8, 1000, 100, 0.005, 5e-4, 0.6, {"heads": 8, "output_heads": 1})),
        ("pubmed", "gat", (8, 1000, 100, 0.01, 1e-3, 0.6, {"heads": 8, "output_heads": 8})),
        ("cora", "sgc", (0, 200, 10, 0.2, 5e-4, 0.0, {"K": 3})),
        ("citeseer", "sgc", (0, 200, 10, 0.2, 5e-3, 0.0, {"K": 2})),
    ],
)
def test_values_by_hand(dataset: str, backbone: str, expected: tuple[Any, ...]) -> None:
    (config,) = node_table([dataset], [backbone], ["relu"])
    assert numbers(config) == expected
    assert config.activation == ("none" if backbone == "sgc" else "relu")
    assert config.normalize_features == (dataset in ("cora", "citeseer", "pubmed"))
    assert (config.split, config.metric, config.dtype) == ("random", "accuracy", "float32")


def test_every_activation_gets_the_same_hyperparameters() -> None:
    for dataset in (*NODE_DATASETS, "mine.npz"):
        for family in ("citation", "social", "other"):
            for backbone in BACKBONES:
                cells = [recipe(dataset, family, backbone, name) for name in ACTIVATIONS]
                assert [cell.activation for cell in cells] == list(ACTIVATIONS)
                assert len({plain(cell) for cell in cells}) == 1


def plain(cell: Config) -> Config:
    """What must be the same for all activations."""
    return replace(cell, activation="any", activation_options=())


def test_grelus_constants_are_spelled_out() -> None:
    """With few labels, under full supervision, and none in the printed form."""
    few = dict(recipe("cora", "citation", "gcn", "grelu").activation_options)
    assert few == {"dropout": 0.2, "scale": 8.0, "temperature": 3.0}
    for deep in (modern("mine.npz", "gcn", "grelu"), graph_cell("mutag", "gin", "grelu")):
        assert dict(deep.activation_options) == CONSTANTS
        arguments = {name: value for name, value in CONSTANTS.items() if name != "gamma_max"}
        act = GReLU(4, **arguments)
        assert all(getattr(act, name) == getattr(GReLU(4), name) for name in arguments)
    printed = recipe("cora", "citation", "gcn", "grelu", activation_options={"mode": "paper"})
    assert dict(printed.activation_options) == {"mode": "paper"}
    assert recipe("cora", "citation", "gcn", "relu").activation_options == ()


def test_the_main_table() -> None:
    table = node_table()
    assert len(table) == len({cell.key() for cell in table}) == 5 * 6 * 6
    assert [dataset for dataset, _ in groupby(cell.dataset for cell in table)] == [*NODE_DATASETS]
    assert {*ACTIVATIONS, *ON_REQUEST} < set(CLASSES)
    part = node_table(["Flickr"], ["GCN", "sgc"], ["ReLU", "grelu"])
    cells = [f"{cell.dataset} {cell.backbone} {cell.activation}" for cell in part]
    assert cells == ["flickr gcn relu", "flickr gcn grelu", "flickr sgc none"]


def test_other_graphs_use_the_last_columns() -> None:
    mine = recipe("mine.npz", "other", "gat", "relu")
    assert numbers(mine) == numbers(recipe("flickr", "social", "gat", "relu"))
    assert not mine.normalize_features
    assert recipe("mine.npz", "other", "gcn", "relu").hidden == 64
    papers = recipe("pyg:CitationFull/DBLP", "citation", "cheb", "relu")
    assert numbers(papers) == numbers(recipe("pubmed", "citation", "cheb", "relu"))
    assert papers.normalize_features
    assert recipe("Cora", "citation", "gcn", "relu").dataset == "cora"


def test_overrides() -> None:
    plain = recipe("cora", "citation", "gat", "grelu")
    changed = recipe(
        *("cora", "citation", "gat", "grelu"),
        hidden=4,
        metric="f1",
        backbone_options={"heads": 2},
        activation_options={"steps": 5},
    )
    assert dict(changed.backbone_options) == {"heads": 2, "output_heads": 1}
    assert changed.told_options == (("steps", 5),)
    differing = {name for name, value in asdict(changed).items() if value != asdict(plain)[name]}
    assert differing == {"hidden", "metric", "backbone_options", "activation_options"}
    assert dict(TABLE["gat"]["cora", "citeseer"].options) == {"heads": 8, "output_heads": 1}


def test_deep_networks() -> None:
    config = modern("mine.npz", "GCN", "gelu")
    assert (config.backbone, config.activation, config.select) == ("gcn", "gelu", "score")
    network = {"layers": 4, "norm": "layer", "residual": True, "linear_first": False}
    assert numbers(config) == (64, 400, 0, 0.003, 0.0, 0.2, network)
    assert (config.split, config.metric, config.is_deep) == ("random", "accuracy", True)
    changed = modern(
        *("mine.npz", "gat", "grelu"),
        layers=2,
        norm=None,
        split="full",
        normalize_features=True,
        backbone_options={"heads": 4},
        activation_options={"steps": 5},
    )
    assert dict(changed.backbone_options) == network | {"layers": 2, "norm": None, "heads": 4}
    assert changed.told_options == (("steps", 5),)
    assert (changed.split, changed.normalize_features) == ("full", True)
    assert dict(modern("mine.npz", "gat", "relu").backbone_options) == network | {"heads": 8}
    cells = [modern("mine.npz", "sage", name) for name in CLASSES]
    assert len({plain(cell) for cell in cells}) == 1
    with pytest.raises(ValueError, match="no backbone 'sgc'"):
        modern("mine.npz", "sgc", "none")
    with pytest.raises(ValueError, match=r"no setting 'epoch' \(did you mean epochs\?\)"):
        modern("mine.npz", "gcn", "relu", epoch=3)


def test_networks_for_sets_of_graphs() -> None:
    config = on_sets("esol", "GINE", "relu")
    network = {"layers": 4, "norm": "batch", "residual": True, "pooling": "mean", "head_layers": 2}
    assert numbers(config) == (64, 100, 0, 0.001, 0.0, 0.0, network)
    assert (config.backbone, config.select, config.is_deep) == ("gine", "score", True)
    assert dict(config.training_options) == {"batch_size": 128, "warmup": 5}
    changed = on_sets("esol", "gcn", "relu", walks=8, lr=0.01, training_options={"batch_size": 16})
    assert dict(changed.backbone_options) == network | {"walks": 8}
    assert dict(changed.training_options) == {"batch_size": 16, "warmup": 5}
    assert len({plain(on_sets("esol", "gcn", name)) for name in CLASSES}) == 1
    with pytest.raises(ValueError, match="no backbone for sets of graphs 'cheb'"):
        on_sets("esol", "cheb", "relu")


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no dataset 'flikr' \(did you mean flickr\?\)"):
        node_table(["flikr"])
    gcnn = (
        r"^There is no backbone 'gcnn' \(did you mean gcn\?\); choose from cheb, gcn, sage, gat, "
        r"arma, appnp, sgc\.$"
    )
    for arguments, settings, sentence in (
        (("citation", "gcnn", "relu"), {}, gcnn),
        (("citation", "gcn", "greul"), {}, r"no activation 'greul' \(did you mean grelu\?\)"),
        (("citation", "gcn", "zzz"), {}, "no activation 'zzz'; choose from relu, lrelu"),
        (("citation", "gcn", "relu"), {"epoch": 3}, r"no setting 'epoch' \(did you mean epochs"),
        (("paper", "gcn", "relu"), {}, "no family 'paper'"),
        (("citation", "sgc", "relu"), {}, "^sgc has no activation, so it takes none, not 'relu'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            recipe("cora", *arguments, **settings)
