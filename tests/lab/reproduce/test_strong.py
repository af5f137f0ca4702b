"""The table of networks with published settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphrelu.lab.models.backbones import DeepGNN
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce import strong
from tests.lab.fake_engine import make_result

BY_CELL = {row.cell: row for row in strong.settings()}


def test_rows() -> None:
    assert len(strong.settings()) == len(BY_CELL) == 3 * (10 + 2)
    squirrel, cora = BY_CELL["squirrel", "gcn", 4], BY_CELL["cora", "gat", 3].settings
    assert (squirrel.mean, squirrel.std) == (45.01, 1.63)
    assert squirrel.settings == {
        "hidden": 256,
        "dropout": 0.7,
        "norm": "batch",
        "residual": True,
        "linear_first": False,
        "lr": 0.01,
        "weight_decay": 5e-4,
        "epochs": 500,
        "metric": "accuracy",
        "split": "masks",
        "normalize_features": False,
    }
    assert (cora["norm"], cora["split"]) == (None, "random")
    full = BY_CELL["cs", "gat", 1].settings
    assert (full["split"], full["normalize_features"]) == ("full", True)
    assert BY_CELL["tolokers", "gcn", 12].settings["metric"] == "rocauc"
    assert BY_CELL["actor", "sage", 3].mean is None
    depths = [(cell.dataset, cell.layers) for cell in strong.depths()]
    assert depths == [("minesweeper", n) for n in (2, 4, 8, 16)] + [
        ("squirrel", n) for n in (2, 8, 16)
    ]


def test_the_same_settings_for_all() -> None:
    for cell, row in strong.all_rows().items():
        configs = {name: row.config(*own) for name, own in strong.ACTIVATIONS.items()}
        same = {replace(c, activation="any", activation_options=()) for c in configs.values()}
        assert len(same) == 1
        wide = {strong.WIDER: row.config("relu", {}, hidden=row.settings["hidden"] + 2)}
        for name, config in (configs | wide).items():
            assert strong.TABLE.place(config) == (cell, name)
    assert strong.TABLE.place(strong.settings()[0].config("elu", {})) is None


@pytest.mark.parametrize("cell", [("squirrel", "gcn", 4), ("minesweeper", "gat", 15)])
def test_wider_has_as_many_parameters(cell: tuple[str, str, int]) -> None:
    row = BY_CELL[cell]
    own, hidden = row.settings["hidden"], strong.wider(row, 20, 3)

    def count(activation: str, width: int) -> int:
        options: dict[str, object] = {"heads": 1} if cell[1] == "gat" else {}
        options |= {name: row.settings[name] for name in ("norm", "residual")}
        network = DeepGNN(cell[1], 20, width, 3, activation, layers=cell[2], **options)
        return sum(parameter.numel() for parameter in network.parameters())

    assert count("relu", hidden - 1) < count("grelu", own) <= count("relu", hidden)


def made_up(points: dict[str, float]) -> list[Result]:
    """Squirrel with its own number of layers and with others."""
    rows = (BY_CELL["squirrel", "gcn", 4], *list(strong.depths().values())[-3:])
    return [
        make_result(
            row.config(*strong.ACTIVATIONS[name]),
            seed,
            0.4 + lead * depth / 100 + 1e-4 * (seed % 3),
        )
        for depth, row in enumerate(rows)
        for name, lead in points.items()
        for seed in range(10)
    ]


def test_held_against_the_published_split() -> None:
    row = BY_CELL["cora", "gcn", 3]
    reached = row.config("relu", {}, split="published")
    elsewhere = [make_result(row.config("relu", {}), seed, 0.7) for seed in range(3)]
    made = [*elsewhere, *(make_result(reached, seed, 0.85) for seed in range(3))]
    assert strong.check(strong.TABLE.found(made)).endswith("in 1 of 1 rows.")
    assert strong.check(strong.TABLE.found(elsewhere)).endswith("in 0 of 0 rows.")


def test_page_names_what_is_not_run_yet(tmp_path: Path) -> None:
    """Rows, and activations of a row that has been begun."""
    record = Record(tmp_path / "strong.jsonl")
    record.append(made_up({"ReLU": 0.0, "GReLU": 1.0}))
    page = strong.TABLE.render(record.path)[0].read_text()
    assert "Squirrel, GCN, 4 layers (PReLU / GELU / SiLU / GReLU-B / ReLU, wider);" in page
    assert f"Cora, GCN, 3 layers ({' / '.join(strong.NAMES)});" in page
