"""The paper's ablation tables: GReLU's variants, ReLU and SGC on Flickr with GCN.

Two rows are not in the paper: GReLU as printed, and the undecomposed hyperfunction, which the paper
rejects without a number.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

from graphrelu.grelu import VARIANTS
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.render import marked
from graphrelu.lab.reproduce import files, shown
from graphrelu.lab.reproduce.table import Pair, Place, Row, Table, beside_paper

PRINTED, UNDECOMPOSED = "GReLU-A, as printed", "undecomposed"

TABLES = {
    "Topology and non-linearity (the paper's Table 3)": (
        *("GReLU-A", "GReLU-B", "GReLU-C", "GReLU-D"),
        *("ReLU", "SGC"),
    ),
    "Intercepts, nodes and channels (the paper's Table 4)": (
        *("GReLU-A", "GReLU-E", "GReLU-F", "GReLU-G"),
    ),
    "Not in the paper's tables": ("GReLU-A", PRINTED, UNDECOMPOSED, "ReLU"),
}


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """The rows of the tables; A and ReLU are cells of the main table."""

    def cell(activation: str, backbone: str = "gcn", **options: object) -> Config:
        return recipe(dataset, backbone, activation, activation_options=options, **changes)

    configs = {f"GReLU-{name}": cell("grelu", **options) for name, options in VARIANTS.items()}
    configs |= {PRINTED: cell("grelu", mode="paper"), UNDECOMPOSED: cell("undecomposed")}
    configs |= {"ReLU": cell("relu"), "SGC": cell("none", "sgc")}
    return {((dataset, "gcn"), name): config for name, config in configs.items()}


def values(row: Row) -> dict[str, Any]:
    """The paper's number, and the losses in nats."""
    losses = {
        name: fmean(getattr(run, name) for run in row.runs.values())
        for name in ("train_loss", "test_loss")
    }
    return beside_paper("ablation", row) | losses


def page(rows: list[Row]) -> dict[str, Any]:
    by_name = {row.name: row for row in rows}
    head = ("variant", "ours", "paper", "A - it", "it - ReLU")
    tables = []
    for title, names in TABLES.items():
        lines = [_line(by_name[name]) for name in names if name in by_name]
        tables.append(f"## {title}\n\n{files.table(head, lines, numbers=1)}")
    columns = ("variant", "training loss", "test loss", "gap")
    return {
        "tables": "\n".join(tables),
        "losses": files.table(columns, map(_losses, rows), numbers=1),
    }


def _line(row: Row) -> tuple[str, ...]:
    leads = (marked(row["behind_a"]), marked(row["over_relu"]))
    return row.name, shown.accuracy(row), shown.papers(row), *leads


def _losses(row: Row) -> tuple[str, ...]:
    losses = (row["train_loss"], row["test_loss"], row["test_loss"] - row["train_loss"])
    return row.name, *(f"{loss:.2f}" for loss in losses)


TABLE = Table(
    name="ablation",
    datasets=("flickr",),
    cells=cells,
    runs=30,
    quick_runs=6,
    pairs=(
        Pair("behind_a", "GReLU-A", None, family=lambda cell, name: cell),
        Pair("over_relu", None, "ReLU", family=lambda cell, name: cell),
    ),
    columns=(
        *("paper_mean", "paper_std", "difference"),
        *("over_relu", "train_loss", "test_loss", "behind_a"),
    ),
    page=page,
    values=values,
)
