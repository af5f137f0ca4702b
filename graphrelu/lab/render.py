"""What a comparison shows: the rows of its table, in percent, the verdict on GReLU, in one sentence
that claims no more than was found, and both in the terminal."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from math import floor, isfinite, log10
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box, progress
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from graphrelu.lab.data import GRAPH_SOURCES, SOURCES
from graphrelu.lab.data.graph import Graph, GraphSet
from graphrelu.lab.models.activations import ACTIVATIONS as CLASSES
from graphrelu.lab.record.config import ERRORS, Config
from graphrelu.lab.record.recipes import SET_BACKBONES, TABLE
from graphrelu.lab.record.results import Result
from graphrelu.lab.stats import Decision, Scores

if TYPE_CHECKING:
    import pandas as pd
    from rich.markdown import Markdown

    from graphrelu.lab.engine import Progress

LABELS = {name: Path(place).stem.partition("_")[0] for name, place in SOURCES.items()}
LABELS = {name: label[0].upper() + label[1:] for name, label in LABELS.items()}
LABELS |= {name: name.upper() for name in GRAPH_SOURCES}
LABELS |= {name: name.upper() for name in (*TABLE, *SET_BACKBONES)} | {"cheb": "Cheb"}
LABELS |= {"lrelu": "LReLU"}  # the other activations have the names of their classes

DIVERGED = "†"
MOST_NAMED = 5  # of the runs that diverged

# The columns of a price: its field, and how the field is shown.
PRICES = {
    "test loss": ("test_loss", "{:.3f}", 1),
    "ECE": ("calibration_error", "{:.1f}", 1),
    "s per epoch": ("seconds_per_epoch", "{:#.2g}", 1),
    "parameters": ("parameters", "{:,}", 1),
    "MB per run": ("peak_memory", "{:,.0f}", 1e-6),
}

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

PIPED_WIDTH = 100
FEW_TESTED = 100  # items of a test part, below which the sentence gives their number
# Nobody is sent to train more than this, or than twice as many runs as there are.
MOST_ADVISED = 80


@dataclass(frozen=True)
class Price:
    """What runs cost beside their score, each a mean; ``None`` where the record does not say.

    The calibration error is in percentage points. Seconds and bytes are those of a batch of seeds
    that are trained at once, divided by its runs, the seconds also by the epochs computed: a run
    that has stopped is computed until the last one of its batch has.
    """

    test_loss: float | None = None
    calibration_error: float | None = None
    seconds_per_epoch: float | None = None
    parameters: int | None = None
    peak_memory: int | None = None


@dataclass(frozen=True)
class CompareRow:
    """One activation on one graph: its scores, its lead over ReLU, and its price.

    ``diverged`` counts the runs whose loss became infinite or NaN. The scores are in percent or, if
    ``is_error``, mean absolute errors in the values' units, the lowest the best.
    """

    activation: str
    mean: float
    std: float
    best: float
    n: int
    over_relu: Decision | None
    price: Price
    diverged: int = 0
    is_error: bool = False


def label(name: str) -> str:
    """A name as the paper spells it; that of a user's file without the hash of its content."""
    name = re.sub(r"@[0-9a-f]{8,}$", "", name)
    if name in LABELS:
        return LABELS[name]
    return CLASSES[name].__name__ if name in CLASSES else name


def in_order(*names: str) -> Callable[[Iterable[str]], list[int]]:
    """A key for sorting by several names: each in this order, unknown names last."""
    place = {name: i for i, name in enumerate(names)}
    return lambda key: [place.get(name, len(place)) for name in key]


def amount(lead: Decision) -> str:
    """A difference with its interval, as every output shows it: ``+0.5 [-0.1, +1.1]``.

    It has one decimal, or as many as it takes for an end of the interval to stay on its side of 0
    and of the margin.
    """
    if lead.low is None or lead.high is None:
        return signed(lead.difference)
    ends, edges = (lead.low, lead.high), (0.0, lead.margin, -lead.margin)

    def keeps_sides(digits: int) -> bool:
        return all(
            _side(round(x, digits) - edge) == _side(x - edge) for x in ends for edge in edges
        )

    digits = next(filter(keeps_sides, (1, 2, 3)), 4)
    mean, low, high = (f"{x + 0.0:+.{digits}f}" for x in (lead.difference, lead.low, lead.high))
    return f"{mean} [{low}, {high}]"


def _side(distance: float) -> int:
    return (distance > 1e-12) - (distance < -1e-12)


def marked(lead: Decision | None) -> str:
    """The same with a star where it is better or worse, and with "=" where nothing matters; empty
    if there is no difference to show."""
    if lead is None:
        return ""
    mark = " *" if lead.differs else " =" if lead.outcome == "no difference" else ""
    return f"{amount(lead)}{mark}"


def signed(number: float) -> str:
    """One decimal and a sign; a small negative number is -0.0, zero is +0.0."""
    return f"{number + 0.0:+.1f}"


def p_value(p: float | None) -> str:
    """Two digits, no false precision."""
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def percent(scores: Scores, is_error: bool = False) -> tuple[float, float, float, int]:
    """Mean, standard deviation and best of the scores, and their number; errors as they are."""
    values = np.array(list(scores.values()))
    factor = -1 if is_error else 100  # on record an error is negative
    std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    mean, best = float(values.mean()), float(values.max())
    return factor * mean, abs(factor) * std, factor * best, len(values)


def measured(lead: Decision) -> str:
    """A difference with its interval, its seeds and its corrected p-value."""
    p = p_value(lead.p)
    return over_seeds(lead) + (f", corrected p {'' if '<' in p else '= '}{p}" if p else "")


def over_seeds(lead: Decision) -> str:
    """A difference with its interval and its seeds."""
    return f"{amount(lead)} {lead.unit} over {lead.n} {'seed' if lead.n == 1 else 'seeds'}"


def compare_rows(
    results: Iterable[Result], decisions: Mapping[str, Decision] = {}
) -> list[CompareRow]:
    """A row for each activation, in the order of the results, which are one comparison's; with the
    decisions on their differences to ReLU."""
    runs: dict[str, list[Result]] = {}
    for result in results:
        runs.setdefault(result.config.activation, []).append(result)
    return [row_of(name, own, decisions.get(own[0].config.variant)) for name, own in runs.items()]


def split_rule(results: Sequence[Result]) -> str:
    """How the nodes were split."""
    notes = list(dict.fromkeys(result.note for result in results))
    return notes[0] if len(notes) == 1 else f"{notes[0]}, and {len(notes) - 1} more"


def row_of(name: str, runs: Sequence[Result], lead: Decision | None) -> CompareRow:
    """The row of one activation, from its runs."""
    is_error = runs[0].config.metric in ERRORS
    scores = percent({run.seed: run.score for run in runs}, is_error)
    return CompareRow(
        name, *scores, lead, price(runs), sum(run.diverged is True for run in runs), is_error
    )


def price(runs: Sequence[Result]) -> Price:
    """The price of one activation, from its runs."""

    def mean(name: str, factor: float = 1) -> float | None:
        values = [getattr(run, name) for run in runs]
        known = all(value is not None and isfinite(value) for value in values)
        return factor * fmean(values) if known else None

    memory, epochs = mean("peak_memory"), mean("epochs_computed")
    return Price(
        mean("test_loss"),
        mean("calibration_error", 100),
        fmean(run.seconds for run in runs) / epochs if epochs else None,
        runs[0].parameters,
        None if memory is None else round(memory),
    )


def compare_cells(rows: Sequence[CompareRow]) -> list[dict[str, str]]:
    """The rows of a comparison as they are shown, by the titles of the columns; what is not known
    of any row has no column, what is not known of one a dash."""
    lines = [{"activation": label(row.activation), **shown(row)} for row in rows]
    known = [name for name in lines[0] if any(line[name] for line in lines)]
    return [{name: line[name] or "-" for name in known} for line in lines]


def shown(row: CompareRow) -> dict[str, str]:
    """The numbers of a row as every output shows them, by the titles of their columns."""
    lead, paid, digits = row.over_relu, asdict(row.price), ".1f"
    if row.is_error:  # four digits of the mean
        digits = f".{3 - floor(log10(row.mean))}f" if 1e-3 <= row.mean < 1e4 else ".4g"
    return {
        "mean": f"{row.mean:{digits}}",
        "std": f"{row.std:{digits}}" if row.n > 1 else "",
        "runs": f"{row.n}{DIVERGED if row.diverged else ''}",
        "difference to ReLU": amount(lead) if lead else "",
        "verdict": lead.outcome if lead else "",
    } | {
        title: "" if paid[name] is None else form.format(factor * paid[name])
        for title, (name, form, factor) in PRICES.items()
    }


def diverged(results: Sequence[Result]) -> str:
    """Which runs have a loss that became infinite or NaN, and of how many that is not recorded;
    empty where none did. Their score is that of the best epoch before, as for any run."""
    told = []
    if lost := [result for result in results if result.diverged]:
        runs = ", ".join(f"seed {r.seed} of {r.config.title}" for r in lost[:MOST_NAMED])
        more = f" and {len(lost) - MOST_NAMED:,} more" if len(lost) > MOST_NAMED else ""
        told.append(
            f"{DIVERGED} {len(lost):,} of {len(results):,} runs diverged, to a loss that is not "
            f"finite ({runs}{more}); the best epoch before that counts."
        )
    if unknown := sum(result.diverged is None for result in results):
        which = "these runs" if unknown == len(results) else f"{unknown:,} of these runs"
        told.append(f"Whether {which} diverged is not recorded.")
    return " ".join(told)


def frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """All values of some rows; a lead becomes several columns, such as ``over_relu_p``."""
    import pandas as pd

    def plain(value: Any) -> Any:
        return asdict(value) if isinstance(value, (Decision, Price)) else value

    known = ({n: plain(value) for n, value in row.items() if value is not None} for row in rows)
    return pd.json_normalize(list(known), sep="_")


def reading(leads: Mapping[str, Decision]) -> str:
    """How to read the differences to ReLU on one graph, by activation."""
    if not leads:
        return ""
    one = next(iter(leads.values()))
    sentences = [f"Differences are paired by seed, in {one.unit}; the intervals are {one.about}."]
    if "grelu" in leads:
        lead = leads["grelu"]
        looks = ""
        if lead.look:
            looks = f" at look {lead.look} (95 % over all looks; adding runs makes a new look)"
        sentences.append(f"GReLU's interval has {100 * (1 - lead.error):.4g} % confidence{looks}.")
    if leads.keys() - {"grelu"}:
        sentences.append("The other activations share Holm's correction.")
    return " ".join(
        [
            *sentences,
            "Better or worse: the interval lies above or below 0.",
            f"No difference that matters: it lies within {one.margin:g} of 0.",
        ]
    )


@dataclass(frozen=True)
class Verdict:
    """A few words, the sentence, and the number of runs to go on with, where that should help."""

    answer: str
    sentence: str
    runs: int | None = None


def verdict(rows: Sequence[CompareRow], baseline: str = "ReLU") -> Verdict:
    """Whether GReLU is better than ReLU here, and which activation has the highest mean."""
    by_name = {row.activation: row for row in rows}
    relu, grelu = by_name.get("relu"), by_name.get("grelu")
    if grelu is None:
        why = "GReLU is not among these activations, so this table says nothing about it."
        return Verdict("", why)
    if len(rows) == 1:
        why = "GReLU stands alone in this table, so there is nothing to compare it with."
        return Verdict("", why)
    if relu is None:
        why = "Whether GReLU helps is an open question: ReLU is not among these activations."
        return Verdict("", why)
    if grelu.over_relu is None:
        return Verdict("", "Whether GReLU helps is an open question: it shares no seed with ReLU.")
    best = (min if rows[0].is_error else max)(rows, key=lambda row: row.mean)
    rest = ""
    if best not in (relu, grelu) and best.over_relu is not None:
        found = f"{amount(best.over_relu)}, {best.over_relu.outcome}"
        end = "lowest" if best.is_error else "highest"
        rest = f" The {end} mean is that of {label(best.activation)} ({found})."
    answer, sentence, runs = _against(relu, grelu, grelu.over_relu, baseline)
    return Verdict(f"{answer}.", f"{sentence}.{rest}", runs)


def going_on(found: Verdict, command: str, record: Path) -> str:
    """The command that continues with an undecided comparison; empty where that gains nothing."""
    if found.runs is None:
        return ""
    return f"{command} --runs {found.runs} --out {shlex.quote(str(record))}"


def _against(
    relu: CompareRow, grelu: CompareRow, lead: Decision, baseline: str
) -> tuple[str, str, int | None]:
    found, few = over_seeds(lead), ""
    if lead.num_test is not None and lead.num_test < FEW_TESTED:
        few = f"each run tests only {lead.num_test} items"
    if lead.outcome == "undecided":
        next_step, runs = _next_step(lead, baseline)
        sentence = f"Whether GReLU is better than {baseline} here is undecided ({found})"
        answer = f"GReLU or {baseline}: undecided"
        return answer, "; ".join(filter(None, (sentence, few, next_step))), runs
    if lead.outcome == "no difference":
        sentence = (
            f"GReLU makes no difference that matters here: keep {baseline} ({found}, all of it "
            f"within {lead.margin:g})"
        )
        return "No difference that matters here", "; ".join(filter(None, (sentence, few))), None
    answer = sentence = f"GReLU is {lead.outcome} than {baseline}"
    loss = ""
    own, other = (row.price.test_loss for row in (grelu, relu))
    if own is not None and other is not None and f"{own:.3f}" != f"{other:.3f}":
        is_higher = own > other
        if is_higher == (lead.outcome == "better"):  # the loss says the opposite of the score
            what = f"a {'higher' if is_higher else 'lower'} test loss"
            loss = f"{what} ({own:.3f}, {baseline} {other:.3f})"
            answer = f"GReLU has the {lead.outcome} score, but {what}"
            sentence = f"GReLU has a {lead.outcome} score than {baseline}"
    if few and not loss:
        answer = f"{answer}, on few test items"
    but = " and ".join(filter(None, (loss, few)))
    return answer, f"{sentence} here ({found}){', but ' if but else ''}{but}", None


def _next_step(lead: Decision, baseline: str) -> tuple[str, int | None]:
    """What should settle it, and with how many runs in all; or that there is nothing to find."""
    if lead.low is None:
        return f"{lead.runs} seeds give an interval", lead.runs
    most = max(MOST_ADVISED, 2 * lead.n)
    if lead.runs is not None and lead.runs <= most:
        return f"about {lead.runs} seeds should settle it", lead.runs
    if lead.runs is None and lead.shared:
        return f"more runs on this data cannot settle it: keep {baseline}", None
    return f"no difference you could measure with {most - lead.n} more runs: keep {baseline}", None


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
        share = now.epoch / now.config.epochs if now.epoch < now.config.epochs else 0.0
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
        f"weight decay {config.weight_decay:g}, {config.epochs} epoch{'s' * (config.epochs > 1)}"
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
