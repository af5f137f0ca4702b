"""From runs to the rows of tables, in percent, and numbers as tables show them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from math import isfinite
from statistics import fmean
from typing import Any, TypeVar

from graphrelu.lab import stats
from graphrelu.lab.data import GRAPH_SOURCES, SOURCES
from graphrelu.lab.models.activations import ACTIVATIONS as CLASSES
from graphrelu.lab.record.divergence import MARK, diverged
from graphrelu.lab.record.published import published
from graphrelu.lab.record.recipes import ACTIVATIONS, GRAPH_BACKBONES, NODE_DATASETS, TABLE
from graphrelu.lab.record.results import Result
from graphrelu.lab.stats.comparison import (
    Cell,
    Cells,
    Scores,
    compared,
    leads_over,
    scores_by_cell,
    splits_by_cell,
)
from graphrelu.lab.stats.decision import MARGIN, Decision
from graphrelu.lab.stats.splits import FEWEST, Splits

LABELS = {name: source.label for name, source in {**SOURCES, **GRAPH_SOURCES}.items()}
LABELS |= {name: name.upper() for name in (*TABLE, *GRAPH_BACKBONES)} | {"cheb": "Cheb"}
LABELS |= {"lrelu": "LReLU"}  # the other activations have the names of their classes

# The columns of a price: its field, and how the field is shown.
PRICES = {
    "test loss": ("test_loss", "{:.3f}", 1),
    "ECE": ("calibration_error", "{:.1f}", 1),
    "s per epoch": ("seconds_per_epoch", "{:#.2g}", 1),
    "parameters": ("parameters", "{:,}", 1),
    "MB per run": ("peak_memory", "{:,.0f}", 1e-6),
}

CHECKED_DATASETS = ("cora", "citeseer", "pubmed")
CHECKED_ACTIVATIONS = ("relu", "lrelu", "elu", "prelu")


@dataclass(frozen=True)
class ScoreRow:
    """What the rows of most tables begin with: an activation in a cell, and its scores in percent.

    A row may also have leads; its class says which of them Holm's correction takes together.
    """

    dataset: str
    backbone: str
    activation: str
    mean: float
    std: float
    best: float
    n: int


AnyRow = TypeVar("AnyRow", bound=ScoreRow)


@dataclass(frozen=True)
class Price:
    """What runs cost beside their score, each a mean; ``None`` where the record does not say.

    The calibration error is in percentage points. Seconds and bytes are those of a batch of seeds
    that are trained at once, divided by its runs, the seconds also by the epochs computed: a run that
    has stopped is computed until the last one of its batch has.
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


@dataclass(frozen=True)
class NodeRow(ScoreRow):
    """One cell of the main table beside the paper's; ``difference`` is ours minus the paper's.

    GReLU's rows have its lead over ReLU, with Holm's correction over all of them.
    """

    paper_mean: float | None
    paper_std: float | None
    difference: float | None
    over_relu: Decision | None


@dataclass(frozen=True)
class Tally:
    """In how many cells GReLU is better or worse than a rival, or makes no difference to it, or
    that is undecided.

    ``higher`` counts the cells in which GReLU's mean is higher, significantly or not.
    """

    rival: str
    better: int
    alike: int
    undecided: int
    worse: int
    higher: int

    @property
    def cells(self) -> int:
        return self.better + self.alike + self.undecided + self.worse


@dataclass(frozen=True)
class ProtocolCheck:
    """The baselines on the citation graphs: those that repeat the paper's numbers, and the rest."""

    within: tuple[NodeRow, ...]
    others: tuple[NodeRow, ...]

    @property
    def sentence(self) -> str:
        cells = len(self.within) + len(self.others)
        if cells == 0:
            return "None of these cells is one of the baselines on the citation graphs."
        names = ", ".join(map(label, CHECKED_ACTIVATIONS))
        return (
            f"In {len(self.within)} of {cells} cells of {names} on the citation graphs, our mean "
            f"lies within one published standard deviation of the paper's."
        )


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


def with_best(rows: Iterable[AnyRow], key: Callable[[AnyRow], Any]) -> list[tuple[AnyRow, bool]]:
    """Rows, and whether each has the highest mean among its neighbours with the same key."""
    found = []
    for _, group in groupby(rows, key=key):
        several = list(group)
        best = max(row.mean for row in several)
        found += [(row, row.mean == best) for row in several]
    return found


def accuracy(row: ScoreRow) -> str:
    """Mean, standard deviation and number of runs: ``81.2 ± 1.0 (12)``."""
    return f"{row.mean:.1f} ± {row.std:.1f} ({row.n})"


def amount(lead: Decision) -> str:
    """A difference with its interval, as every output shows it: ``+0.5 [-0.1, +1.1]``.

    It has one decimal, or as many as it takes for an end of the interval to stay on its side of 0
    and of the margin.
    """
    if lead.low is None or lead.high is None:
        return signed(lead.difference)
    edges = (0.0, lead.margin, -lead.margin)
    digits = next(
        (
            digits
            for digits in (1, 2, 3)
            if all(
                _side(round(end, digits) - edge) == _side(end - edge)
                for end in (lead.low, lead.high)
                for edge in edges
            )
        ),
        4,
    )
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
    found = stats.summary(list(scores.values()))
    if is_error:  # on record it is negative
        return -found.mean, found.std, -found.best, found.n
    return 100 * found.mean, 100 * found.std, 100 * found.best, found.n


def measured(lead: Decision) -> str:
    """A difference with its interval, its seeds and its corrected p-value."""
    p = p_value(lead.p)
    return (
        f"{over_seeds(lead)}, corrected p {'' if '<' in p else '= '}{p}" if p else over_seeds(lead)
    )


def over_seeds(lead: Decision | Decision) -> str:
    """A difference with its interval and its seeds."""
    return f"{amount(lead)} {lead.unit} over {lead.n} {'seed' if lead.n == 1 else 'seeds'}"


def compare_rows(
    results: Iterable[Result], decisions: Mapping[str, Decision] | None = None
) -> list[CompareRow]:
    """A row for each activation, in the order of the results, all of one graph and backbone; with
    the decisions on their differences to ReLU."""
    results = list(results)
    cells = scores_by_cell(results)
    if len(cells) != 1:
        raise ValueError(f"A comparison is of one graph and one backbone, not of {len(cells)}.")
    (scores,) = cells.values()
    runs = {name: [r for r in results if r.config.activation == name] for name in scores}
    leads = decisions or {}
    return [row_of(name, own, leads.get(own[0].config.variant)) for name, own in runs.items()]


def row_of(name: str, runs: Sequence[Result], lead: Decision | None) -> CompareRow:
    """The row of one activation, from its runs."""
    is_error = runs[0].config.metric == "mae"
    scores = percent({run.seed: run.score for run in runs}, is_error)
    return CompareRow(
        name, *scores, lead, price(runs), sum(diverged(run) is True for run in runs), is_error
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
    of any row has no column."""
    lines = [{"activation": label(row.activation), **shown(row)} for row in rows]
    known = [name for name in lines[0] if any(line[name] for line in lines)]
    return [{name: line[name] for name in known} for line in lines]


def shown(row: CompareRow) -> dict[str, str]:
    """The numbers of a row as every output shows them, by the titles of their columns."""
    lead, paid, digits = row.over_relu, asdict(row.price), "4g" if row.is_error else "1f"
    return {
        "mean": f"{row.mean:.{digits}}",
        "std": f"{row.std:.{digits}}" if row.n > 1 else "",
        "runs": f"{row.n}{MARK if row.diverged else ''}",
        "difference to ReLU": amount(lead) if lead else "",
        "verdict": lead.outcome if lead else "",
    } | {
        title: "" if paid[name] is None else form.format(factor * paid[name])
        for title, (name, form, factor) in PRICES.items()
    }


def reading(leads: Mapping[str, Decision]) -> str:
    """How to read the differences to ReLU on one graph, by activation."""
    if not leads:
        return ""
    one = next(iter(leads.values()))
    sentences = [f"Differences are paired by seed, in {one.unit}; the intervals are {one.about}."]
    if "grelu" in leads:
        lead = leads["grelu"]
        looks = f" at look {lead.look}; all looks together have 95 %" if lead.look else ""
        sentences.append(f"GReLU's has {100 * (1 - lead.error):.4g} % confidence{looks}.")
    if leads.keys() - {"grelu"}:
        sentences.append("The other activations are corrected together (Holm).")
    return " ".join(
        [
            *sentences,
            "Better, worse: the interval lies above, below 0.",
            f"No difference that matters: it lies within {one.margin:g} of 0.",
        ]
    )


def node_rows(results: Iterable[Result]) -> list[NodeRow]:
    """The main table, in the paper's order."""
    results = list(results)
    cells = scores_by_cell(results)
    leads = leads_over(cells, "grelu", "relu", splits_by_cell(results))
    rows = [
        NodeRow(
            **beside_paper("node_classification", *cell, name, scores[name]),
            over_relu=leads.get(cell) if name == "grelu" else None,
        )
        for cell, scores in cells.items()
        for name in scores
    ]
    position = in_order(*NODE_DATASETS, *TABLE, *ACTIVATIONS)
    return sorted(rows, key=lambda row: position((row.dataset, row.backbone, row.activation)))


def beside_paper(
    table: str, dataset: str, backbone: str, activation: str, scores: Scores
) -> dict[str, Any]:
    """What a row of the paper's tables begins with: its names, our numbers, and the paper's."""
    row = vars(ScoreRow(*(dataset, backbone, activation, *percent(scores))))
    paper = published(table, dataset, backbone, activation)
    mean, std = (paper.mean, paper.std) if paper else (None, None)
    difference = None if mean is None else row["mean"] - mean
    return row | {"paper_mean": mean, "paper_std": std, "difference": difference}


def caution(rows: Iterable[NodeRow]) -> str:
    """A sentence if there are too few seeds for any star in the table; else empty."""
    return too_few([row.over_relu for row in rows if row.over_relu is not None])


def too_few(leads: Sequence[Decision]) -> str:
    """A sentence if none of the leads has enough runs to be decided; else empty."""
    if not leads or max(lead.n for lead in leads) >= FEWEST:
        return ""
    return f"Nothing in this table is decided: that takes {FEWEST} seeds or more."


def tallies(results: Iterable[Result]) -> list[Tally]:
    """GReLU against each rival, with Holm's correction over the cells of that rival."""
    results = list(results)
    return tallies_of(grelu_leads(scores_by_cell(results), splits_by_cell(results)))


def loss_tallies(results: Iterable[Result]) -> list[Tally]:
    """The same by the cross-entropy of the test nodes, where it is finite; lower is better."""
    return tallies_of(loss_leads(results))


def loss_leads(results: Iterable[Result]) -> dict[str, dict[Cell, Decision]]:
    """How far GReLU's cross-entropy is below each rival's, without a margin."""
    known = [result for result in results if isfinite(result.test_loss)]
    cells = scores_by_cell(known, score_of=lambda result: -result.test_loss)
    return grelu_leads(cells, splits_by_cell(known), margin=0)


def against_best(results: Iterable[Result]) -> str:
    """A sentence: GReLU against whichever activation has the highest mean in a cell."""
    results = list(results)
    cells = scores_by_cell(results)
    pairs = {}
    for cell, scores in cells.items():
        best = max(scores, key=lambda name: fmean(scores[name].values()))
        if "grelu" in scores and best != "grelu":
            pairs[cell] = (scores["grelu"], scores[best])
    total = sum("grelu" in scores for scores in cells.values())
    found = compared(pairs, splits_by_cell(results))
    worse = [cell for cell, lead in found.items() if lead.outcome == "worse"]
    names = ", ".join("-".join(map(label, cell)) for cell in worse)
    return (
        "Against whichever activation has the highest mean accuracy of a cell, as seen on the "
        "same test nodes, which favours it: GReLU has it itself in "
        f"{total - len(pairs)} of {total} cells, "
        f"is not told apart from it in {len(pairs) - len(worse)}, and is worse in "
        f"{len(worse)}{f' ({names})' if worse else ''}."
    )


def tallies_of(leads_by_rival: Mapping[str, Mapping[Any, Decision]]) -> list[Tally]:
    """GReLU against each rival, from its leads by cell."""
    counts = []
    for rival, leads in leads_by_rival.items():
        outcomes: list[str] = [lead.outcome for lead in leads.values()]
        if leads:
            better, alike, undecided, worse = map(
                outcomes.count, ("better", "no difference", "undecided", "worse")
            )
            higher = sum(lead.difference > 0 for lead in leads.values())
            counts.append(Tally(rival, better, alike, undecided, worse, higher))
    return counts


def protocol_check(results: Iterable[Result]) -> ProtocolCheck:
    """Which baselines on the citation graphs lie within one published standard deviation."""
    parts: dict[bool, list[NodeRow]] = {True: [], False: []}
    for row in node_rows(results):
        checked = row.dataset in CHECKED_DATASETS and row.activation in CHECKED_ACTIVATIONS
        if checked and row.difference is not None and row.paper_std is not None:
            # A deviation of exactly one counts, whatever the last bit of a sum.
            parts[abs(row.difference) <= row.paper_std + 1e-9].append(row)
    return ProtocolCheck(tuple(parts[True]), tuple(parts[False]))


def grelu_leads(
    cells: Cells, splits: Mapping[Cell, Splits], margin: float = MARGIN
) -> dict[str, dict[Cell, Decision]]:
    """GReLU's leads over each rival, in every cell that has both, corrected by rival."""
    found = {}
    for rival in [name for name in ACTIVATIONS if name != "grelu"]:
        pairs = {cell: (own.get("grelu", {}), own.get(rival, {})) for cell, own in cells.items()}
        found[rival] = compared(pairs, splits, margin)
    return found
