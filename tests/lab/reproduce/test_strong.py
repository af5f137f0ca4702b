"""The table of networks with published settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphrelu.lab.models.backbones import DeepGNN
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce import strong
from tests.lab.fake_engine import make_result

BY_CELL = {row.cell: row for row in strong.rows()}


def test_rows() -> None:
    assert len(strong.rows()) == len(BY_CELL) == 3 * (10 + 2)
    assert BY_CELL["squirrel", "gcn", 4] == strong.Row(
        *("squirrel", "gcn", 256, 4, 0.7, "batch", True, False, 0.01, 5e-4, 500, "accuracy"),
        *("masks", False, 45.01, 1.63),
    )
    assert BY_CELL["cora", "gat", 3].norm is None
    assert (BY_CELL["cora", "gat", 3].split, BY_CELL["cs", "gat", 1].split) == ("random", "full")
    assert BY_CELL["tolokers", "gcn", 12].metric == "rocauc"
    assert BY_CELL["actor", "sage", 3].mean is None
    depths = [(row.dataset, row.layers) for row in strong.depth_rows()]
    assert depths == [("minesweeper", n) for n in (2, 4, 8, 16)] + [
        ("squirrel", n) for n in (2, 8, 16)
    ]


def test_the_same_settings_for_all() -> None:
    for row in strong.all_rows():
        configs = {name: row.config(*own) for name, own in strong.ACTIVATIONS.items()}
        same = {replace(c, activation="any", activation_options=()) for c in configs.values()}
        assert len(same) == 1
        for name, config in configs.items():
            assert strong.TABLE.place(config) == (row.cell, name)
        wide = row.config("relu", {}, hidden=row.hidden + 2)
        assert strong.TABLE.place(wide) == (row.cell, strong.WIDER)
    assert strong.TABLE.place(strong.rows()[0].config("elu", {})) is None


@pytest.mark.parametrize("cell", [("squirrel", "gcn", 4), ("minesweeper", "gat", 15)])
def test_wider_has_as_many_parameters(cell: tuple[str, str, int]) -> None:
    row = BY_CELL[cell]
    hidden = strong.wider(row, 20, 3)

    def count(activation: str, width: int) -> int:
        options: dict[str, object] = {"heads": 1} if row.backbone == "gat" else {}
        options |= {"layers": row.layers, "norm": row.norm, "residual": row.residual}
        network = DeepGNN(row.backbone, 20, width, 3, activation, **options)
        return sum(parameter.numel() for parameter in network.parameters())

    assert count("relu", hidden - 1) < count("grelu", row.hidden) <= count("relu", hidden)


def made_up(points: dict[str, float]) -> list[Result]:
    row = BY_CELL["squirrel", "gcn", 4]
    made = []
    for depth, settings in enumerate((row, *strong.depth_rows()[-3:])):
        for name, lead in points.items():
            config = settings.config(*strong.ACTIVATIONS[name])
            made += [
                make_result(config, seed, 0.4 + lead * depth / 100 + 1e-4 * (seed % 3))
                for seed in range(10)
            ]
    return made


def test_held_against_the_published_split() -> None:
    row = BY_CELL["cora", "gcn", 3]
    assert (row.normalize_features, BY_CELL["cs", "gat", 1].normalize_features) == (False, True)
    reached = row.config("relu", {}, split="published")
    elsewhere = [make_result(row.config("relu", {}), seed, 0.7) for seed in range(3)]
    made = [*elsewhere, *(make_result(reached, seed, 0.85) for seed in range(3))]
    assert "in 1 of 1 rows. The published" in strong.check(made)
    assert "in 0 of 0 rows. The published" in strong.check(elsewhere)


def test_page_names_what_is_not_run_yet(tmp_path: Path) -> None:
    """Rows, and activations of a row that has been begun."""
    record = Record(tmp_path / "strong.jsonl")
    record.append(made_up({"ReLU": 0.0, "GReLU": 1.0}))
    page = strong.render(record.path)[0].read_text()
    assert "Squirrel, GCN, 4 layers (PReLU / GELU / SiLU / GReLU-B / ReLU, wider);" in page
    assert f"Cora, GCN, 3 layers ({' / '.join(strong.NAMES)});" in page
