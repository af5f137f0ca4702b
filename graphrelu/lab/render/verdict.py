"""What a comparison says about GReLU, in one sentence that claims no more than was found, and what
to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graphrelu.lab.render.tables import CompareRow, amount, label, over_seeds
from graphrelu.lab.stats.decision import Decision

FEW_TESTED = 100  # items of a test part, below which the sentence gives their number
# Nobody is sent to train more than this, or than twice as many runs as there are.
MOST_ADVISED = 80


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
        return _open("GReLU is not among these activations, so this table says nothing about it.")
    if len(rows) == 1:
        return _open("GReLU stands alone in this table, so there is nothing to compare it with.")
    if relu is None:
        return _open("Whether GReLU helps is open, as ReLU is not among these activations.")
    if grelu.over_relu is None:
        return _open("Whether GReLU helps is open, as it shares no seed with ReLU.")
    best = (min if rows[0].is_error else max)(rows, key=lambda row: row.mean)
    rest = ""
    if best not in (relu, grelu) and best.over_relu is not None:
        found = f"{amount(best.over_relu)}, {best.over_relu.outcome}"
        end = "lowest" if best.is_error else "highest"
        rest = f" The {end} mean is that of {label(best.activation)} ({found})."
    answer, sentence, runs = _against(relu, grelu, grelu.over_relu, baseline)
    return Verdict(f"{answer}.", f"{sentence}.{rest}", runs)


def going_on(found: Verdict, command: str, record: Path) -> str:
    """The command that goes on with an undecided comparison; empty where that gains nothing."""
    if found.runs is None:
        return ""
    return f"{command} --runs {found.runs} --out {shlex.quote(str(record))}"


def _open(sentence: str) -> Verdict:
    return Verdict("", sentence)


def _against(
    relu: CompareRow, grelu: CompareRow, lead: Decision, baseline: str
) -> tuple[str, str, int | None]:
    found, few = f"({over_seeds(lead)})", ""
    if lead.num_test is not None and lead.num_test < FEW_TESTED:
        few = f"each run tests only {lead.num_test} items"
    if lead.outcome == "undecided":
        next_step, runs = _next_step(lead, baseline)
        sentence = f"Whether GReLU is better than {baseline} here is undecided {found}"
        answer = f"GReLU or {baseline}: undecided"
        return answer, "; ".join(filter(None, (sentence, few, next_step))), runs
    if lead.outcome == "no difference":
        answer = "No difference that matters here"
        sentence = (
            f"GReLU makes no difference that matters here: keep {baseline} ({over_seeds(lead)}, "
            f"all of it within {lead.margin:g})"
        )
        return answer, f"{sentence}; {few}" if few else sentence, None
    loss = _opposite_loss(relu, grelu, lead, baseline)
    answer = sentence = f"GReLU is {lead.outcome} than {baseline}"
    if loss:
        answer = f"GReLU has the {lead.outcome} score, but {loss.split(' (')[0]}"
        sentence = f"GReLU has a {lead.outcome} score than {baseline}"
    elif few:
        answer = f"{answer}, on few test items"
    rest = " and ".join(filter(None, (loss, few)))
    return answer, f"{sentence} here {found}{', but ' if rest else ''}{rest}", None


def _opposite_loss(relu: CompareRow, grelu: CompareRow, lead: Decision, baseline: str) -> str:
    """That the loss says the opposite of the score, as it is shown; else nothing."""
    own, other = grelu.price.test_loss, relu.price.test_loss
    if own is None or other is None or f"{own:.3f}" == f"{other:.3f}":
        return ""
    if (own > other) != (lead.outcome == "better"):
        return ""
    return f"a {'higher' if own > other else 'lower'} test loss ({own:.3f}, {baseline} {other:.3f})"


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
