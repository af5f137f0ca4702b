"""The paper's table of graph classification, run again, and written from the record alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from pathlib import Path

from graphrelu.lab.data.folds import NUM_FOLDS
from graphrelu.lab.record import output
from graphrelu.lab.record.config import FOLD_SPLITS, Config
from graphrelu.lab.record.recipes import (
    ACTIVATIONS,
    GRAPH_BACKBONES,
    GRAPH_DATASETS,
    GRAPH_HIDDEN,
    GRAPH_LAYERS,
    check_name,
    graph_cell,
)
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce.experiment import Request, standing, train_missing

REPEATS = 3
PROTOCOLS = {
    "folds": "The paper's protocol: a test fold apart",
    "gin_folds": "The GIN paper's protocol: no test fold",
}
NOTES = {
    "folds": """\
Of ten stratified folds one tests, the next validates, eight train; the epoch is that of the lowest
validation loss, the configuration that of the highest validation accuracy.
""",
    "gin_folds": """\
Of ten stratified folds nine train; the epoch is that of the highest accuracy on the held-out folds
in the mean, and so is the configuration: the same graphs choose and are reported, and the numbers
are higher for it. The paper's ReLU column equals the GIN paper's, which has this protocol.
""",
}
COMMON_NOTES = """\
Accuracy in percent, mean ± standard deviation over runs, one for each fold of each assignment
(their number in brackets); the paper's numbers are over 10 folds. The configuration, hidden units x
layers, was chosen on the first fold assignment and repeated on the others. The last columns are
GReLU's lead over ReLU, paired by fold, with its 95 % interval; * marks what is significant
(Wilcoxon test, 5 %, Holm's correction over the protocol's table). Assignments deal the same graphs
anew, so that their runs are not independent, and the intervals are narrower than they should be.
"""


@dataclass(frozen=True)
class GraphGrid:
    """What is to be run: every configuration on the first fold assignment, and those chosen on
    ``repeats`` more."""

    datasets: Sequence[str] = GRAPH_DATASETS
    backbones: Sequence[str] = GRAPH_BACKBONES
    activations: Sequence[str] = ACTIVATIONS
    hidden: Sequence[int] = GRAPH_HIDDEN
    layers: Sequence[int] = GRAPH_LAYERS
    protocols: Sequence[str] = FOLD_SPLITS
    repeats: int = REPEATS
    epochs: int = 100

    def __post_init__(self) -> None:
        if self.repeats < 0:
            raise ValueError(f"repeats must be a whole number from 0, not {self.repeats}.")

    @property
    def runs(self) -> int:
        """Of a configuration that was chosen."""
        return NUM_FOLDS * (1 + self.repeats)

    def cells(self) -> list[Config]:
        """A point of the grid for all cells, then the next: wherever training stops, all have been
        given nearly the same."""
        protocols = [check_name("protocol", name, FOLD_SPLITS) for name in self.protocols]
        axes = (self.hidden, self.layers, protocols, self.datasets, self.backbones)
        return [
            graph_cell(
                dataset, backbone, activation, hidden, layers, split=protocol, epochs=self.epochs
            )
            for hidden, layers, protocol, dataset, backbone in product(*axes)
            for activation in self.activations
        ]


def quick_grid(grid: GraphGrid, request: Request) -> GraphGrid:
    """The same in haste: one dataset, one point, few epochs."""
    datasets = ("mutag",) if request.has_root else ("digit-graphs",)
    return replace(grid, datasets=datasets, hidden=(16,), layers=(2,), repeats=0, epochs=20)


def collect_graphs(grid: GraphGrid, request: Request) -> str:
    """Adds to the record what it lacks, and says in a sentence how much is there."""
    from graphrelu.lab.render.graph_table import choices

    began = time.monotonic()
    if request.quick:
        grid = quick_grid(grid, request)
    cells = grid.cells()
    wanted = set(cells)
    finished = len(train_missing(cells, request, range(NUM_FOLDS)))
    if finished == NUM_FOLDS * len(wanted) and grid.repeats:
        # Of all that is on record, as the table will be.
        chosen = [
            config
            for choice in choices(Record(request.out).read()).values()
            for config in choice.configs.values()
            if any(_same_cell(config, cell) for cell in wanted)
        ]
        left = request.seconds and max(1e-9, request.seconds - (time.monotonic() - began))
        rest = replace(request, seconds=left)
        finished += len(train_missing(chosen, rest, range(NUM_FOLDS, grid.runs)))
    choosing = len(wanted) // (len(grid.hidden) * len(grid.layers))
    total = NUM_FOLDS * (len(wanted) + grid.repeats * choosing)
    return standing(finished, total, request.out)


def _same_cell(first: Config, second: Config) -> bool:
    names = ("split", "dataset", "backbone", "activation")
    return all(getattr(first, name) == getattr(second, name) for name in names)


def has_table(record: Path) -> bool:
    """Whether there is a cell of which all activations have finished a point of the grid."""
    from graphrelu.lab.render.graph_table import choices

    return bool(choices(Record(record).read()))


def render_graphs(record: Path) -> list[Path]:
    """Writes ``.md`` and ``.csv`` beside the record, from all runs on record."""
    from graphrelu.lab.render import export
    from graphrelu.lab.render.graph_table import GraphRow, graph_rows

    paths = [record.with_suffix(ending) for ending in (".md", ".csv")]
    for path in paths:
        output.check_file(path)
    results = [r for r in Record(record).read() if r.config.split in FOLD_SPLITS]
    rows = graph_rows(results)
    if not rows:
        raise ValueError(f"{record} has no configuration yet that all activations finished.")
    output.write_text(paths[0], document(results, record.name))
    output.write_text(paths[1], export.to_csv(rows, GraphRow))
    return paths


def document(results: Sequence[Result], source: str) -> str:
    """Everything about a record of graph classification on one page."""
    from graphrelu.lab.render.export import provenance, table, table_line
    from graphrelu.lab.render.graph_table import choices, graph_rows, grid_sentence
    from graphrelu.lab.render.tables import caution, label

    chosen = choices(results)
    parts = [
        "# The paper's graph classification, run again\n",
        provenance(results, source) + "\n",
        COMMON_NOTES,
    ]
    head = ("backbone", "activation", "ours", "paper", "difference", "GReLU - ReLU", "p")
    for protocol, rows in groupby(graph_rows(results), key=lambda row: row.protocol):
        table_rows = list(rows)
        of_protocol = [choice for cell, choice in chosen.items() if cell[0] == protocol]
        notes = f"{NOTES[protocol]}{grid_sentence(of_protocol)}\n{caution(table_rows)}"
        parts += [f"## {PROTOCOLS[protocol]}\n", notes.rstrip() + "\n"]
        for dataset, part in groupby(table_rows, key=lambda row: row.dataset):
            lines = []
            for _, cell in groupby(part, key=lambda row: row.backbone):
                rows_of_cell = list(cell)
                best = max(row.mean for row in rows_of_cell)
                for row in rows_of_cell:
                    line = table_line(row, bold=row.mean == best)
                    lines.append((*line[:2], f"{row.hidden} x {row.layers}", *line[2:]))
            columns = (*head[:2], "chosen", *head[2:])
            parts.append(f"### {label(dataset)}\n\n{table(columns, lines, numbers=3)}")
    return "\n".join(parts)
