"""The paper's main table, node classification: as the paper has it, or tuned (``--tuned``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphrelu.lab.record import output
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import NODE_DATASETS, TABLE, family_of, node_table, recipe
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce.experiment import Experiment, Request, standing, train_missing
from graphrelu.lab.reproduce.tuning import QUICK_RUNS, tuned_cells
from graphrelu.lab.reproduce.tuning_page import has_choice, render_tuned

RUNS = 10


def main_table(*lists: Sequence[str]) -> Experiment:
    """The table of these datasets, backbones and activations, with the paper's settings."""

    def collect(request: Request) -> str:
        if request.quick:
            raise ValueError("--quick goes with --tuned: the main table has no small version.")
        return _trained(node_table(*lists), request)

    return Experiment(RUNS, RUNS, collect, render, has_page=lambda record: bool(_runs(record)))


def tuned_table(*lists: Sequence[str]) -> Experiment:
    """The same table, in which every activation chooses from the same settings."""

    def collect(request: Request) -> str:
        return _trained(tuned_cells(request, *lists), request)

    return Experiment(RUNS, QUICK_RUNS, collect, render_tuned, has_choice)


def render(record: Path) -> list[Path]:
    """Writes ``.md`` and ``.csv`` beside the record, from all runs on record."""
    paths = [output.check_file(record.with_suffix(ending)) for ending in (".md", ".csv")]
    results = _runs(record)
    if not results:
        raise ValueError(f"{record} has no runs of the main table.")
    from graphrelu.lab.render import export, tables

    contents = (export.document(results, record.name), export.to_csv(tables.node_rows(results)))
    for path, text in zip(paths, contents, strict=True):
        output.write_text(path, text)
    return paths


def _trained(configs: Sequence[Config], request: Request) -> str:
    finished = len(train_missing(configs, request))
    return standing(finished, len(configs) * request.runs, request.out)


def _runs(record: Path) -> list[Result]:
    """The runs with the table's settings; runs with an older default of GReLU are left out."""
    results = Record(record).read()
    known = {
        c: recipe(c.dataset, family_of(c.dataset), c.backbone, c.activation)
        for c in {result.config for result in results}
        if c.dataset in NODE_DATASETS and c.backbone in TABLE
    }
    return [result for result in results if known.get(result.config) == result.config]
