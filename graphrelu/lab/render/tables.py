"""From runs to the rows of tables, in percent, to numbers as tables show them, and to the verdict:
what a comparison says about GReLU, in one sentence that claims no more than was found."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from statistics import fmean

import numpy as np

from graphrelu.lab.data import GRAPH_SOURCES, SOURCES
from graphrelu.lab.models.activations import ACTIVATIONS as CLASSES
from graphrelu.lab.record.config import ERRORS
from graphrelu.lab.record.divergence import MARK
from graphrelu.lab.record.recipes import SET_BACKBONES, TABLE
from graphrelu.lab.record.results import Result
from graphrelu.lab.stats import Decision, Scores

LABELS = {name: Path(place).stem.partition("_")[0] for name, place in SOURCES.items()}
LABELS = {name: label[0].upper() + label[1:] for name, label in LABELS.items()}
LABELS |= {name: name.upper() for name in GRAPH_SOURCES}
LABELS |= {name: name.upper() for name in (*TABLE, *SET_BACKBONES)} | {"cheb": "Cheb"}
LABELS |= {"lrelu": "LReLU"}  # the other activations have the names of their classes

# The columns of a price: its field, and how the field is shown.
PRICES = {
    "test loss": ("test_loss", "{:.3f}", 1),
    "ECE": ("calibration_error", "{:.1f}", 1),
    "s per epoch": ("seconds_per_epoch", "{:#.2g}", 1),
    "parameters": ("parameters", "{:,}", 1),
    "MB per run": ("peak_memory", "{:,.0f}", 1e-6),
}

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
