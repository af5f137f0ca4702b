"""A configuration is checked, survives JSON, and has the same key everywhere."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from graphrelu.lab.record.config import Config

CONFIG = Config(
    dataset="cora",
    backbone="gat",
    activation="grelu",
    hidden=8,
    epochs=1000,
    patience=100,
    lr=0.005,
    weight_decay=5e-4,
    dropout=0.6,
    normalize_features=True,
    activation_options=(("steps", 10), ("form", "residual")),
    backbone_options=(("output_heads", 1), ("heads", 8)),
)


def test_round_trip() -> None:
    plain = json.loads(json.dumps(CONFIG.to_dict()))
    assert plain["backbone_options"] == {"heads": 8, "output_heads": 1}
    assert set(plain) == {field.name for field in fields(Config)} - {"feature_scale", "select"}
    assert Config.from_dict(plain) == CONFIG
    assert Config.from_dict(plain).key() == CONFIG.key()


@pytest.mark.parametrize(
    ("name", "default", "other"), [("feature_scale", 1.0, 100.0), ("select", "loss", "score")]
)
def test_records_from_before_a_field_stay_what_they_are(
    name: str, default: object, other: object
) -> None:
    """At its default it is in no record and in no key."""
    assert replace(CONFIG, **{name: default}).key() == CONFIG.key()
    changed = replace(CONFIG, **{name: other})
    plain = json.loads(json.dumps(changed.to_dict()))
    assert plain == CONFIG.to_dict() | {name: other}
    assert Config.from_dict(plain) == changed


def test_title() -> None:
    assert CONFIG.title == "cora gat grelu (form=residual, steps=10)"
    scaled = replace(CONFIG, feature_scale=100)
    assert scaled.title == "cora gat grelu, features x 100 (form=residual, steps=10)"


def test_deep_networks_name_their_norm() -> None:
    deep = replace(CONFIG, backbone_options=(("layers", 4), ("norm", "layer")))
    assert deep.is_deep
    assert not CONFIG.is_deep
    assert replace(deep, split="folds").is_deep
    assert not replace(deep, backbone_options=(("layers", 4),), split="folds").is_deep
    assert deep.title == "cora gat grelu 8 x 4 (form=residual, steps=10)"
    assert replace(deep, split="folds").title == (
        "cora gat grelu 8 x 4 folds (form=residual, steps=10)"
    )


def test_the_key_is_stable() -> None:
    # Written down once: a record of earlier runs is found again by it.
    assert CONFIG.key() == "51cee8c79ffb"


def test_the_key_knows_every_field_and_no_order() -> None:
    changes: dict[str, Any] = {
        "dataset": "citeseer",
        "backbone": "gcn",
        "activation": "relu",
        "hidden": 9,
        "epochs": 999,
        "patience": 99,
        "lr": 0.01,
        "weight_decay": 0,
        "dropout": 0.5,
        "normalize_features": False,
        "activation_options": (),
        "backbone_options": (("heads", 4),),
        "split": "masks",
        "metric": "f1",
        "dtype": "float64",
        "feature_scale": 0.01,
        "select": "score",
    }
    assert set(changes) == {field.name for field in fields(Config)}
    keys = {replace(CONFIG, **{name: value}).key() for name, value in changes.items()}
    assert len(keys | {CONFIG.key()}) == len(changes) + 1
    swapped = replace(CONFIG, backbone_options=tuple(reversed(CONFIG.backbone_options)))
    assert swapped == CONFIG
    assert swapped.key() == CONFIG.key()
    assert replace(CONFIG, lr=1).key() == replace(CONFIG, lr=1.0).key()


def test_it_is_frozen_and_hashable() -> None:
    with pytest.raises(FrozenInstanceError):
        CONFIG.lr = 1.0  # type: ignore[misc]
    assert len({CONFIG, replace(CONFIG)}) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dataset": ""}, "dataset must be a name, not ''."),
        ({"hidden": 0}, "hidden must be a whole number from 1, not 0."),
        ({"hidden": 8.0}, "hidden must be a whole number from 1, not 8.0."),
        ({"hidden": True}, "hidden must be a whole number from 1, not True."),
        ({"activation": "none", "hidden": -1}, "hidden must be a whole number from 0, not -1."),
        ({"epochs": 0}, "epochs must be a whole number from 1, not 0."),
        ({"patience": -1}, "patience must be a whole number from 0, not -1."),
        ({"lr": 0}, "lr must be positive, not 0.0."),
        ({"lr": float("nan")}, "lr must be a finite number, not nan."),
        ({"lr": "fast"}, "lr must be a finite number, not 'fast'."),
        ({"weight_decay": -1e-3}, "weight_decay must be zero or more, not -0.001."),
        ({"feature_scale": 0}, "feature_scale must be positive, not 0.0."),
        ({"feature_scale": "1"}, "feature_scale must be a finite number, not '1'."),
        ({"dropout": 1.0}, "dropout must lie in [0, 1), not 1.0."),
        ({"normalize_features": 1}, "normalize_features must be true or false, not 1."),
        (
            {"split": "test"},
            "split must be one of random, full, masks, published, folds, gin_folds, gin_paper, "
            "not 'test'.",
        ),
        ({"metric": "loss"}, "metric must be one of accuracy, f1, rocauc, mae, r2, not 'loss'."),
        ({"dtype": "int8"}, "dtype must be one of float32, float64, not 'int8'."),
        ({"select": "f1"}, "select must be one of loss, score, not 'f1'."),
        (
            {"select": "score", "split": "folds"},
            "select must be loss for sets of graphs, not 'score'.",
        ),
        (
            {"backbone_options": (("K", 2), ("K", 3))},
            "backbone_options must not repeat a name, not ['K', 'K'].",
        ),
        ({"backbone_options": ((1, 2),)}, "backbone_options must have names, not [1]."),
        (
            {"backbone_options": 3},
            "backbone_options must be pairs of a name and a value, not 3.",
        ),
        (
            {"activation_options": (("shape", [1]),)},
            "activation_options: shape must be a plain value, not [1].",
        ),
        (
            {"activation_options": (("slope", float("inf")),)},
            "activation_options: slope must be a plain value, not inf.",
        ),
    ],
)
def test_bad_values_have_their_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match="not") as caught:
        replace(CONFIG, **changes)
    assert str(caught.value) == sentence


def test_bad_dictionaries() -> None:
    plain = CONFIG.to_dict()
    with pytest.raises(ValueError, match=r"^A configuration has no field 'seed'\.$"):
        Config.from_dict(plain | {"seed": 1})
    del plain["lr"]
    with pytest.raises(ValueError, match=r"^The configuration is incomplete \(.*'lr'\)\.$"):
        Config.from_dict(plain)
