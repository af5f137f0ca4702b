"""The table of networks with published settings."""

from __future__ import annotations

import pytest
import torch

from graphrelu.lab.models.backbones import DeepGNN
from graphrelu.lab.reproduce import strong
from tests.lab.fake_engine import make_result

BY_CELL = {row.cell: row for row in strong.settings()}


# Features and classes.
SIZES = {
    "cora": (1_433, 7),
    "citeseer": (3_703, 6),
    "pubmed": (500, 3),
    "photo": (745, 8),
    "computers": (767, 10),
    "cs": (6_805, 15),
    "physics": (8_415, 5),
    "minesweeper": (7, 2),
    "tolokers": (10, 2),
    "squirrel": (2_089, 5),
    "chameleon": (2_325, 5),
    "actor": (932, 5),
}


@pytest.mark.parametrize("row", strong.settings(), ids=lambda row: row.cell.title)
def test_wider_has_as_many_parameters(row: strong.Settings) -> None:
    """And with one unit less, fewer."""
    options = {name: row.settings[name] for name in ("norm", "residual", "linear_first")}
    options |= strong.OPTIONS.get(row.cell.backbone, {}) | {"layers": row.cell.layers}
    features, classes = SIZES[row.cell.dataset]

    def count(activation: str, width: int) -> int:
        with torch.device("meta"):
            shape = (features, width, classes)
            made = DeepGNN(row.cell.backbone, *shape, activation, **options)
        return sum(parameter.numel() for parameter in made.parameters())

    wanted = count("grelu", row.settings["hidden"])
    assert count("relu", row.wider - 1) < wanted <= count("relu", row.wider)


def test_held_against_the_published_split() -> None:
    row = BY_CELL["cora", "gcn", 3]
    reached = row.config("relu", {}, split="published")
    elsewhere = [make_result(row.config("relu", {}), seed, 0.7) for seed in range(3)]
    made = [*elsewhere, *(make_result(reached, seed, 0.85) for seed in range(3))]
    assert strong.check(strong.TABLE.rows(made)).endswith("in 1 of 1 rows.")
    assert strong.check(strong.TABLE.rows(elsewhere)).endswith("in 0 of 0 rows.")
