"""A configuration is checked, survives JSON, and has the same key everywhere."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from graphrelu.lab.record.config import LATER, Config

CONFIG = Config(
    *("cora", "gat", "grelu", 8, 1000, 100, 0.005, 5e-4, 0.6, True),
    activation_options=(("steps", 10), ("form", "residual")),
    backbone_options=(("output_heads", 1), ("heads", 8)),
)


def test_round_trip() -> None:
    plain = json.loads(json.dumps(CONFIG.to_dict()))
    assert plain["backbone_options"] == {"heads": 8, "output_heads": 1}
    assert set(plain) == {field.name for field in fields(Config)} - {*LATER, "training_options"}
    assert Config.from_dict(plain) == CONFIG
    # Written down once: a record of earlier runs is found again by it.
    assert CONFIG.key() == "51cee8c79ffb"


@pytest.mark.parametrize(
    ("name", "default", "other"),
    [("select", "loss", "score"), ("progress", "score", "either")],
)
def test_records_from_before_a_field_stay_what_they_are(
    name: str, default: object, other: object
) -> None:
    """At its default it is in no record and in no key."""
    config = replace(CONFIG, select="score") if name == "progress" else CONFIG
    assert replace(config, **{name: default}).key() == config.key()
    changed = replace(config, **{name: other})
    plain = json.loads(json.dumps(changed.to_dict()))
    assert plain == config.to_dict() | {name: other}
    assert Config.from_dict(plain) == changed


def test_titles_and_deep_networks() -> None:
    """A deep network is one that names its norm."""
    deep = replace(CONFIG, backbone_options=(("layers", 4), ("norm", "layer")))
    papers = replace(deep, backbone_options=(("layers", 4),), split="folds")
    for config, is_deep, title in (
        (CONFIG, False, ""),
        (deep, True, " 8 x 4"),
        (replace(deep, split="folds"), True, " 8 x 4 folds"),
        (papers, False, " 8 x 4 folds"),
    ):
        assert config.is_deep == is_deep
        assert config.title == f"cora gat grelu{title} (form=residual, steps=10)"


def test_the_key_knows_every_field_and_no_order() -> None:
    other = Config(
        *("citeseer", "gcn", "relu", 9, 999, 99, 0.01, 0, 0.5, False, (), (("heads", 4),)),
        *("masks", "f1", "float64", "score", "either", (("batch_size", 8),)),
    )
    by_score = replace(CONFIG, select="score")
    keys = {replace(CONFIG, **{name: value}).key() for name, value in vars(other).items()}
    keys |= {CONFIG.key(), replace(by_score, progress="either").key()}
    assert len(keys) == len(fields(Config)) + 1
    for config in (CONFIG, replace(by_score, patience=0)):  # where nothing stops by the score
        assert replace(config, progress="either") == config
    swapped = replace(CONFIG, backbone_options=tuple(reversed(CONFIG.backbone_options)))
    assert swapped == CONFIG
    assert swapped.key() == CONFIG.key()
    assert replace(CONFIG, lr=1).key() == replace(CONFIG, lr=1.0).key()


SPLITS = "random, full, masks, published, scaffold, column, folds, gin_folds, gin_paper"


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("dataset", "", " must be a name, not ''."),
        ("hidden", 0, " must be positive, not 0."),
        ("hidden", True, " must be a whole number, not True."),
        ("epochs", 0, " must be one or more, not 0."),
        ("patience", -1, " must be zero or more, not -1."),
        ("lr", 0, " must be positive, not 0.0."),
        ("lr", float("nan"), " must be a finite number, not nan."),
        ("weight_decay", -1e-3, " must be zero or more, not -0.001."),
        ("dropout", 1.0, " must lie in [0, 1), not 1.0."),
        ("normalize_features", 1, " must be true or false, not 1."),
        ("split", "test", f" must be one of {SPLITS}, not 'test'."),
        ("select", "f1", " must be one of loss, score, not 'f1'."),
        ("backbone_options", ((1, 2),), " must have names, not 1."),
        ("backbone_options", 3, " must be pairs of a name and a value, not 3."),
        ("activation_options", (("shape", [1]),), ": shape must be a plain value, not [1]."),
        ("activation_options", (("a", float("inf")),), ": a must be a plain value, not inf."),
    ],
)
def test_bad_values_have_their_sentence(name: str, value: Any, rule: str) -> None:
    with pytest.raises(ValueError, match="not") as caught:
        replace(CONFIG, **{name: value})
    assert str(caught.value) == f"{name}{rule}"


def test_bad_dictionaries() -> None:
    plain = CONFIG.to_dict()
    with pytest.raises(ValueError, match=r"^A configuration has no field 'seed'\.$"):
        Config.from_dict(plain | {"seed": 1})
    del plain["lr"]
    with pytest.raises(ValueError, match=r"^The configuration is incomplete \(.*'lr'\)\.$"):
        Config.from_dict(plain)
