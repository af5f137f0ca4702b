"""The numbers that the paper prints, to stand beside ours."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

TABLES = ("node_classification", "graph_classification", "ablation")


@dataclass(frozen=True)
class Published:
    """Mean, standard deviation and best of the paper's runs, in percent; some cells lack a best."""

    mean: float
    std: float
    best: float | None


def published(table: str, dataset: str, backbone: str, activation: str) -> Published | None:
    """The paper's numbers of a cell of one of :data:`TABLES`; ``None`` if the paper has none.

    The names are ours, in any case: ``lrelu``, ``pubmed``. The ablation calls GReLU's variants
    ``grelu-a`` to ``grelu-g``, and lists ``sgc`` among the activations.
    """
    if table not in TABLES:
        raise ValueError(f"The paper has no table {table!r}; choose from {', '.join(TABLES)}.")
    return _cells().get((table, dataset.lower(), backbone.lower(), activation.lower()))


@cache
def _cells() -> dict[tuple[str, ...], Published]:
    file = files("graphrelu.lab.record").joinpath("published_results.csv")
    cells = {}
    for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
        cell = (row["table"], row["dataset"], row["backbone"], row["activation"])
        best = float(row["best"]) if row["best"] else None
        key = tuple(map(str.lower, cell))
        cells[key] = Published(float(row["mean"]), float(row["std"]), best)
    return cells
