"""Experiments as configurations: the paper's, from one table of hyperparameters, and deep networks.

The paper itself gives the widths, the dropout and the splits. The rest comes from PyG's
``benchmark/citation`` scripts and from the public pre-publication code that grew out of them. The
numbers depend on the backbone and the graph, never on the activation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from graphrelu.lab.data import SOURCES
from graphrelu.lab.data.named import class_of
from graphrelu.lab.errors import check_name
from graphrelu.lab.models.activations import ACTIVATIONS as CLASSES
from graphrelu.lab.models.backbones import DEEP_BACKBONES
from graphrelu.lab.models.graph_networks import Network
from graphrelu.lab.record.config import CONSTANTS, FEW_LABELS, OPTIONS, Config, Option

NODE_DATASETS = ("cora", "citeseer", "pubmed", "blogcatalog", "flickr")
BACKBONES = ("cheb", "gcn", "sage", "gat", "arma", "appnp")
ACTIVATIONS = ("relu", "lrelu", "elu", "prelu", "maxout", "grelu")  # the paper's
# Left out of a comparison on a deep network, unless asked for by name.
ON_REQUEST = ("lrelu", "elu", "undecomposed", "digraf", "digraf-plain")

GRAPH_DATASETS = ("mutag", "proteins")
GRAPH_BACKBONES = ("gcn", "sage", "gin")
CITATIONS = ("Planetoid", "CitationFull", "CoraFull")  # classes of PyG
SET_BACKBONES = ("gcn", "gine", "gin", "gat", "sage")  # of the general networks for sets


class Row(NamedTuple):
    """The settings of one backbone on some graphs; ``hidden`` 0 means no hidden layer."""

    hidden: int
    epochs: int
    patience: int
    lr: float
    weight_decay: float
    dropout: float
    options: Mapping[str, Option]


_ARMA = {"num_layers": 1, "num_stacks": 2, "shared_weights": False, "skip_dropout": 0.5}
_ARMA_SHARED = _ARMA | {"num_stacks": 3, "shared_weights": True, "skip_dropout": 0.75}
_APPNP = {"K": 10, "alpha": 0.1}

# Backbone -> columns -> row. The column "pubmed" also serves every other citation graph, the
# column "social" every graph of another kind.
TABLE: dict[str, dict[tuple[str, ...], Row]] = {
    "cheb": {
        ("cora", "citeseer"): Row(16, 200, 10, 0.01, 5e-4, 0.5, {"K": 3}),
        ("pubmed",): Row(16, 200, 10, 0.01, 5e-4, 0.5, {"K": 2}),
        ("social",): Row(64, 200, 10, 0.01, 5e-4, 0.5, {"K": 2}),
    },
    "gcn": {
        ("cora", "citeseer", "pubmed"): Row(16, 300, 10, 0.01, 5e-4, 0.5, {}),
        ("social",): Row(64, 300, 10, 0.01, 5e-4, 0.5, {}),
    },
    "sage": {
        ("cora", "citeseer", "pubmed"): Row(16, 400, 10, 0.01, 5e-4, 0.5, {}),
        ("social",): Row(64, 400, 10, 0.01, 5e-4, 0.5, {}),
    },
    "gat": {
        ("cora", "citeseer"): Row(8, 1000, 100, 0.005, 5e-4, 0.6, {"heads": 8, "output_heads": 1}),
        ("pubmed", "social"): Row(8, 1000, 100, 0.01, 1e-3, 0.6, {"heads": 8, "output_heads": 8}),
    },
    "arma": {
        ("cora", "citeseer"): Row(16, 1000, 100, 0.01, 5e-4, 0.5, _ARMA_SHARED),
        ("pubmed",): Row(16, 1000, 100, 0.01, 5e-4, 0.5, _ARMA),
        ("social",): Row(64, 1000, 100, 0.01, 5e-4, 0.5, _ARMA),
    },
    "appnp": {
        ("cora", "citeseer", "pubmed", "social"): Row(64, 200, 10, 0.01, 5e-4, 0.5, _APPNP),
    },
    "sgc": {
        ("cora",): Row(0, 200, 10, 0.2, 5e-4, 0.0, {"K": 3}),
        ("citeseer",): Row(0, 200, 10, 0.2, 5e-3, 0.0, {"K": 2}),
        ("pubmed", "social"): Row(0, 200, 10, 0.2, 5e-4, 0.0, {"K": 2}),
    },
}


def recipe(dataset: str, backbone: str, activation: str, **overrides: Any) -> Config:
    """The configuration of one cell, on any graph.

    Args:
        dataset: The graph's name; only ``cora`` and ``citeseer`` have columns to themselves.
            Features are row-normalised on PyG's citation graphs only.
        backbone: One of :data:`BACKBONES`, or ``sgc``.
        activation: A name in :data:`graphrelu.lab.models.activations.ACTIVATIONS`; ``none`` for
            ``sgc``, which has no activation.
        **overrides: Other fields of :class:`Config`. Options, given as a dictionary or as pairs,
            are added to the table's.
    """
    backbone = check_name("backbone", backbone, tuple(TABLE))
    if backbone == "sgc" and activation != "none":
        raise ValueError(f"sgc has no activation, so it takes none, not {activation!r}.")
    if dataset.lower() in NODE_DATASETS:
        dataset = dataset.lower()
    is_citation = class_of(SOURCES.get(dataset, dataset)) in CITATIONS
    column = "pubmed" if is_citation else "social"
    if dataset in ("cora", "citeseer"):
        column = dataset
    row = next(row for columns, row in TABLE[backbone].items() if column in columns)
    values = row._asdict() | {"normalize_features": is_citation}
    values["activation_options"] = FEW_LABELS if activation.lower() == "grelu" else {}
    values["backbone_options"] = values.pop("options")
    return _config((dataset, backbone, activation), values, overrides)


_FIXED: dict[str, Any] = {"patience": 0, "weight_decay": 0.0, "normalize_features": False}
DEEP = _FIXED | {"hidden": 64, "epochs": 400, "lr": 0.003, "dropout": 0.2, "select": "score"}
SETS = _FIXED | {"hidden": 64, "epochs": 100, "lr": 0.001, "dropout": 0.0, "select": "score"}
DEEP_NETWORK = {"layers": 4, "norm": "layer", "residual": True, "linear_first": False}
NETWORK = {"layers": 4, "norm": "batch", "residual": True, "pooling": "mean", "head_layers": 2}
GRAPHS = _FIXED | {"epochs": 100, "lr": 0.01, "dropout": 0.5, "split": "folds"}


def modern(dataset: str, backbone: str, activation: str, **overrides: Any) -> Config:
    """A configuration of a deep network, as networks are trained today, on any graph.

    It is :data:`DEEP`, changed by the fields of :class:`Config` in ``overrides``, as in
    :func:`recipe`; ``hidden`` is the width of a layer, for GAT of all heads together. Others are
    arguments of :class:`~graphrelu.lab.models.backbones.DeepGNN`, in place of
    :data:`DEEP_NETWORK`.
    """
    backbone = check_name("backbone", backbone, tuple(DEEP_BACKBONES))
    network = DEEP_NETWORK | DEEP_BACKBONES[backbone]
    values = DEEP | {"activation_options": {}, "backbone_options": network}
    return _config((dataset, backbone, activation), values, overrides, DEEP_NETWORK)


def on_sets(dataset: str, backbone: str, activation: str, **overrides: Any) -> Config:
    """A configuration of a network for a set of graphs, as such networks are trained today.

    It is :data:`SETS`, changed by ``overrides`` as in :func:`modern`: fields of :class:`Config`, or
    of :class:`~graphrelu.lab.models.graph_networks.Network`.
    """
    backbone = check_name("backbone for sets of graphs", backbone, (*SET_BACKBONES, "bond"))
    network = {field.name for field in fields(Network)} - {"hidden", "dropout"}
    values = SETS | {"activation_options": {}, "backbone_options": NETWORK}
    values["training_options"] = {"batch_size": 128, "warmup": 5}
    return _config((dataset, backbone, activation), values, overrides, network)


def _config(
    names: tuple[str, str, str],
    values: dict[str, Any],
    overrides: Mapping[str, Any],
    network: Collection[str] = (),
) -> Config:
    """The configuration of a dataset, backbone and activation; options are added to others, and
    those of the ``network`` can be named alone.

    GReLU's constants are spelled out, so that a record of one default is never taken for another's.
    """
    dataset, backbone, activation = names
    if backbone != "sgc":
        activation = check_name("activation", activation, tuple(CLASSES))
    settings = [field.name for field in fields(Config)]
    for name, value in overrides.items():
        if name in network:
            values["backbone_options"] = values["backbone_options"] | {name: value}
            continue
        setting = check_name("setting", name, settings)
        values[setting] = values[setting] | dict(value) if setting in OPTIONS else value
    if activation == "grelu" and values["activation_options"].get("mode") != "paper":
        values["activation_options"] = CONSTANTS | values["activation_options"]
    elif activation == "grelu":  # the printed form has no constants
        options = values["activation_options"].items()
        values["activation_options"] = {n: value for n, value in options if n not in CONSTANTS}
    for name in OPTIONS:
        values[name] = tuple(values.get(name, {}).items())
    return Config(dataset, backbone, activation, **values)


def compared() -> tuple[str, ...]:
    """The activations of a comparison on a deep network, unless the user names others."""
    return tuple(name for name in CLASSES if name not in ON_REQUEST)


def graph_cell(
    dataset: str,
    backbone: str,
    activation: str,
    hidden: int = 32,
    layers: int = 3,
    **overrides: Any,
) -> Config:
    """A configuration of graph classification by the paper's protocol, the same on every set of
    graphs; the learning rate is halved every 50 epochs."""
    dataset = dataset.lower() if dataset.lower() in GRAPH_DATASETS else dataset
    backbone = check_name("backbone for sets of graphs", backbone, GRAPH_BACKBONES)
    options = {"activation_options": {}, "backbone_options": {"layers": layers}}
    values = GRAPHS | {"hidden": hidden} | options
    return _config((dataset, backbone, activation), values, overrides)
