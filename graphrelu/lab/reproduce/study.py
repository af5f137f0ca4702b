"""How GReLU's default constants were chosen: by validation scores, in two regimes.

Few labels: the paper's two-layer networks, 20 labels per class. Full supervision: deeper networks,
all labels. The record has test scores, but nothing here reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import family_of, recipe
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export, figures
from graphrelu.lab.render.tables import label, signed
from graphrelu.lab.reproduce import deep
from graphrelu.lab.reproduce.experiment import (
    Experiment,
    Place,
    Request,
    Table,
    standing,
    train_missing,
)
from graphrelu.lab.stats.comparison import leads_over
from graphrelu.lab.stats.decision import Decision

FEW, FULL = "few labels", "full supervision"
FEW_DATASETS = ("cora", "citeseer", "flickr")
SEEDS = {"cora": 30, "citeseer": 30}  # other graphs have as many as the user asks for
FIRST_SEED = 1000  # no other table has these seeds

# Each form with each dropout is a candidate.
FORMS: dict[str, dict[str, Any]] = {
    "diagonal": {"scale": 8.0, "temperature": 1.0, "gamma_max": 3.0},
    "diagonal, T = 3": {"scale": 8.0, "temperature": 3.0, "gamma_max": 3.0},
    "full matrix": {"diagonal": False, "scale": 1.0, "temperature": 1.0, "gamma_max": 3.0},
}
DROPOUTS = (0.0, 0.2)
# The dropout with few labels, and under full supervision.
POLICIES = [(few, full) for few in DROPOUTS for full in DROPOUTS if few >= full]
TIE = 0.2  # points by which a default that draws random numbers must be better
FINALISTS = 3  # choices that are trained with GAT and ten layers, too

Candidate: TypeAlias = tuple[str, float]  # form, dropout


class Cell(NamedTuple):
    """A regime, a graph and a network; its settings are the same for all candidates."""

    regime: str
    dataset: str
    backbone: str
    layers: int

    def config(self, activation: str, options: dict[str, Any], **changes: Any) -> Config:
        if self.regime == FULL:
            return deep.Cell(*self[1:]).config(activation, options, **changes)
        return recipe(
            *(self.dataset, family_of(self.dataset), self.backbone, activation),
            activation_options=options,
            **changes,
        )

    @property
    def title(self) -> str:
        return f"{label(self.dataset)} {label(self.backbone)} {self.layers}"

    @property
    def is_late(self) -> bool:
        """Whether the cell is slow: only the finalists are trained there."""
        return self.backbone == "gat" or self.layers == deep.MORE_LAYERS


def candidates() -> dict[Candidate, dict[str, Any]]:
    """Form and dropout -> the options of GReLU."""
    return {
        (form, dropout): options | {"dropout": dropout}
        for form, options in FORMS.items()
        for dropout in DROPOUTS
    }


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """ReLU, which has no name, and every candidate in every network on a graph."""
    networks = []
    if dataset not in deep.CHOOSING:
        networks += [Cell(FEW, dataset, backbone, 2) for backbone in deep.BACKBONES]
    if dataset not in FEW_DATASETS:
        networks += [Cell(FULL, *cell) for cell in deep.networks(dataset)]
    found: dict[Place, Config] = {}
    for cell in networks:
        found[cell, None] = cell.config("relu", {}, **changes)
        for name, options in candidates().items():
            found[cell, name] = cell.config("grelu", options, **changes)
    return found


TABLE = Table("study", "of the study", (*FEW_DATASETS, *deep.CHOOSING), cells)


def collect(request: Request) -> str:
    """Train the missing runs: every candidate in the early cells; then, once the early cells
    are complete, the finalists in the late cells."""
    early: dict[Place, Config] = {}
    late: dict[Place, Config] = {}
    for place, config in TABLE.wanted(request.datasets(*TABLE.datasets), **request.changes).items():
        (late if place[0].is_late else early)[place] = config

    def runs(configs: Iterable[Config]) -> dict[Config, range]:
        numbers = {} if request.quick else SEEDS
        return {
            config: range(FIRST_SEED, FIRST_SEED + numbers.get(config.dataset, request.runs))
            for config in configs
        }

    some = (None, *list(candidates())[:FINALISTS])  # as many as the finalists
    then = runs(config for (_, name), config in late.items() if name in some)
    finished, total = train_missing(runs(early.values()), request, then)
    if finished == total:
        on_record = [run for run in Record(request.out).read() if TABLE.place(run.config) in early]
        best = choices(leads(on_record))[:FINALISTS]
        finalists = {
            (regime, (choice.form, choice.dropout_in(regime)))
            for choice in best
            for regime in (FEW, FULL)
        }
        chosen = [
            config
            for (cell, name), config in late.items()
            if name is None or (cell.regime, name) in finalists
        ]
        more = train_missing(runs(chosen), request)
        finished, total = finished + more[0], total + more[1]
    return standing(finished, total, request.out)


Leads: TypeAlias = dict[Candidate, dict[Cell, Decision]]


def leads(results: Sequence[Result]) -> Leads:
    """Each candidate's lead over ReLU in each cell, with Holm's correction over the cells, which
    are in the order of the record."""
    scores = TABLE.scores(results, attrgetter("val_score"))
    places = [place for run in results if (place := TABLE.place(run.config)) is not None]
    found = {cell: scores[cell] for cell, _ in places}
    return {name: leads_over(found, name, None) for name in candidates()}


@dataclass(frozen=True)
class Choice:
    """A form with a dropout for each regime, and its mean leads over ReLU."""

    form: str
    few_dropout: float
    full_dropout: float
    few: float  # mean leads
    full: float
    harmed: tuple[str, ...]  # cells that are significantly worse than ReLU
    cells: int

    def dropout_in(self, regime: str) -> float:
        return self.few_dropout if regime == FEW else self.full_dropout

    @property
    def mean(self) -> float:
        """Both regimes weigh the same."""
        return (self.few + self.full) / 2

    @property
    def merit(self) -> float:
        """A default that draws no random numbers is simpler, and wins a tie."""
        return self.mean + TIE * (self.full_dropout == 0)


def choices(found: Leads) -> list[Choice]:
    """All forms and policies, the best by the rule first; more cells come before fewer."""
    made = []
    for form in FORMS:
        for few, full in POLICIES:
            parts = [
                {cell: lead for cell, lead in found[form, p].items() if cell.regime == regime}
                for regime, p in ((FEW, few), (FULL, full))
            ]
            if all(parts):
                own = [pair for part in parts for pair in part.items()]
                harmed = tuple(cell.title for cell, lead in own if lead.outcome == "worse")
                means = [fmean(lead.difference for lead in part.values()) for part in parts]
                made.append(Choice(form, few, full, means[0], means[1], harmed, len(own)))
    return sorted(made, key=lambda c: (c.cells, not c.harmed, c.merit), reverse=True)


@dataclass(frozen=True)
class StudyRow:
    """One candidate in one cell: its lead over ReLU in validation score."""

    regime: str
    dataset: str
    backbone: str
    layers: int
    form: str
    dropout: float
    over_relu: Decision | None


def render(record: Path) -> list[Path]:
    """The study as a page and as CSV."""
    results = TABLE.read(record)
    found = leads(results)
    ranked = choices(found)
    if not ranked:
        raise ValueError(f"{record} has no candidate in both regimes yet.")
    page = TABLE.text(
        *(results, record),
        forms=len(FORMS),
        dropouts=len(DROPOUTS),
        finalists=FINALISTS,
        tie=TIE,
        outcome=_outcome(ranked),
        few=_table(found, FEW),
        full=_table(found, FULL),
    )
    rows = [
        StudyRow(*cell, *candidate, lead)
        for candidate, own in found.items()
        for cell, lead in own.items()
    ]
    return figures.write(record, page, rows, StudyRow)


def _outcome(ranked: Sequence[Choice]) -> str:
    best = ranked[0]
    lines = [
        (
            f"**{choice.form}**" if choice is best else choice.form,
            *(f"{p:g}" for p in (choice.few_dropout, choice.full_dropout)),
            *(f"{lead:+.2f}" for lead in (choice.few, choice.full, choice.mean)),
            str(choice.cells),
            ", ".join(choice.harmed) or "none",
        )
        for choice in ranked
    ]
    regimes = (FEW, FULL)
    head = ("form", *(f"dropout, {name}" for name in regimes), *regimes, "mean", "cells")
    named = (
        f"**{best.form}**, dropout {best.few_dropout:g} with few labels and "
        f"{best.full_dropout:g} under full supervision"
    )
    sentence = f"The rule chooses {named}."
    if best.harmed:
        sentence = f"No form is harmless in every cell. The rule's mean is highest for {named}."
    return f"{sentence}\n\n{export.table((*head, 'cells harmed'), lines, numbers=1)}"


def _table(found: Leads, regime: str) -> str:
    """Cells by candidates: points ahead of ReLU in validation score."""
    places = [cell for cell in next(iter(found.values())) if cell.regime == regime]
    lines = [(cell.title, *(_amount(own.get(cell)) for own in found.values())) for cell in places]
    head = ("cell", *(f"{form}, dropout {p:g}" for form, p in found))
    return export.table(head, lines, numbers=1)


def _amount(lead: Decision | None) -> str:
    if lead is None:
        return ""
    return signed(lead.difference) + " *" * (lead.outcome != "undecided")


EXPERIMENT = Experiment(runs=10, quick_runs=2, collect=collect, render=render)
