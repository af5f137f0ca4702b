"""Tables, sentences and progress bars in the terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from rich import box, progress
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.record.config import Config
from graphrelu.lab.render.tables import PRICES, CompareRow, compare_cells, label, reading

if TYPE_CHECKING:
    from rich.markdown import Markdown

    from graphrelu.lab.engine import Progress

PIPED_WIDTH = 100
# By the columns that they explain.
PRICE_NOTES = {
    "ECE": "ECE: expected calibration error in percentage points, 15 bins.",
    "s per epoch": "s per epoch: seconds for all seeds trained together, divided by their number "
    "and the epochs computed.",
    "MB per run": "MB per run: the GPU's peak memory for all seeds trained together, divided by "
    "their number.",
}
METRICS = {
    "accuracy": "accuracy in percent",
    "f1": "F1 in percent",
    "rocauc": "area under the ROC curve in percent",
    "ap": "average precision in percent",
    "mae": "mean absolute error",
    "rmse": "root mean squared error",
    "r2": "R² in percent",
}


def console(stderr: bool = False) -> Console:
    """The screen; plain text of a fixed width if the output is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPED_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


@contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None]]:
    """A bar on a terminal's stderr, nothing elsewhere; gives the function to call."""
    screen = console(stderr=True)
    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.fields[runs]} runs"),
        progress.TimeRemainingColumn(elapsed_when_finished=True),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    tasks: list[progress.TaskID] = []

    def update(now: Progress) -> None:
        # The runs at work count by their epochs, unless they were just counted as done.
        share = now.epoch / now.epochs if now.epoch < now.epochs else 0.0
        completed = min(now.runs_done + share * len(now.seeds), now.runs_total)
        if not tasks:  # what was on record took no time: the estimate starts after it
            tasks.append(bar.add_task("", total=now.runs_total, completed=int(completed), runs=""))
        bar.update(
            tasks[0],
            completed=completed,
            description=" ".join(map(label, now.config.title.split())),
            runs=f"{now.runs_done}/{now.runs_total}",
        )

    # rich before 14.3 writes an empty line for a bar that is disabled.
    with bar if screen.is_terminal else nullcontext():
        yield update


def markdown(text: str) -> Markdown:
    """A page as it was written to a file, with the names of its figures in their places."""
    from rich.markdown import Markdown

    return Markdown(re.sub(r"!\[(.*?)\]\((.*?)\)", r"\1: see \2.", text))


def headline(
    graph: Graph | GraphSet, config: Config, runs: int, until_decided: bool = False
) -> str:
    """What is compared, before it is trained."""
    options = dict(config.backbone_options)
    depth = f"{options['layers']} layers of " if options.get("layers") else ""
    norm = f"{options['norm']} norm, " if options.get("norm") else ""
    skips = "skips, " if isinstance(graph, GraphSet) else "linear skips, "
    skips = skips if options.get("residual") else ""
    average = ""
    if config.metric == "f1":
        average = "micro " if graph.task == "labels" else "macro "
    return (
        f"{graph.name}: {size_of(graph)}\n"
        f"{label(config.backbone)}: {depth}{config.hidden} hidden units, {norm}{skips}"
        f"dropout {config.dropout:g}, learning rate {config.lr:g}, "
        f"weight decay {config.weight_decay:g}, {config.epochs} epochs"
        f"{' at most' if config.patience else ''}\n"
        f"{runs} {'run' if runs == 1 else 'runs'} of each activation"
        f"{' at most, until GReLU is decided' if until_decided else ''}, {config.split} split, "
        f"test {average}{METRICS[config.metric]}"
    )


def size_of(graph: Graph | GraphSet) -> str:
    """How many nodes, edges and features there are, and what is learned, as the labels say."""
    graphs = f"{graph.num_graphs:,} graphs, " if isinstance(graph, GraphSet) else ""
    features = "feature" if graph.num_features == 1 else "features"
    left_out = getattr(graph, "num_unlabelled", 0)
    unlabelled = f", {left_out:,} nodes left out (no label)" if left_out else ""
    return (
        f"{graphs}{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, "
        f"{graph.num_features:,} {features}, {task_of(graph)}{unlabelled}"
    )


def task_of(graph: Graph | GraphSet) -> str:
    """What is learned, as the labels say."""
    task = f"{graph.num_classes} {graph.task}"
    if graph.task == "labels":
        what = "graph" if isinstance(graph, GraphSet) else "node"
        several = f"{task}, any number of each {what} (multi-label classification)"
        task = several if graph.num_classes > 1 else "1 label (binary classification)"
    elif graph.task == "values":
        known = graph.y[~graph.y.isnan()]
        task = f"values from {known.min():.4g} to {known.max():.4g} (regression)"
    return task


def compare_table(rows: Sequence[CompareRow]) -> Group:
    """One row per activation, with the best mean in bold, and below it the price of each: together
    they would be wider than a terminal."""
    lines = compare_cells(rows)
    first, *columns = lines[0]
    paid = [name for name in columns if name in PRICES]
    scores, prices = _table(first, [n for n in columns if n not in paid]), _table(first, paid)
    best = (min if rows[0].is_error else max)(row.mean for row in rows)
    for row, line in zip(rows, lines, strict=True):
        name, mean, *rest = (line[name] for name in line if name not in paid)
        scores.add_row(name, Text(mean, style="bold" if row.mean == best else ""), *rest)
        prices.add_row(name, *(line[column] for column in paid))
    return Group(scores, "", prices) if paid else Group(scores)


def compare_notes(rows: Sequence[CompareRow]) -> str:
    """How to read the table of a comparison."""
    notes = [reading({row.activation: row.over_relu for row in rows if row.over_relu})]
    if rows[0].is_error:
        notes.append("A lower error is better: a difference above 0 is a lower error.")
    titles = compare_cells(rows)[0]
    notes += [note for name, note in PRICE_NOTES.items() if name in titles]
    return " ".join(filter(None, notes))


def _table(name: str, numbers: Sequence[str]) -> Table:
    """An empty table: a column of names, and columns of numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(name, no_wrap=True)
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table
