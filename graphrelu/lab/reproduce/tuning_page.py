"""The tuned table as a page and as CSV, from its record alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

from graphrelu.lab.record import output
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, NODE_DATASETS, node_table
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export
from graphrelu.lab.render.tables import (
    amount,
    grelu_leads,
    label,
    p_value,
    percent,
    tallies_of,
    too_few,
)
from graphrelu.lab.reproduce.tuning import (
    DROPOUT,
    LR_FACTOR,
    SETTINGS,
    WEIGHT_DECAY_FACTOR,
    Cell,
    Choice,
    choices,
    grid,
    place_in_grid,
)
from graphrelu.lab.stats.comparison import Comparison, Scores

NOTES = f"""\
Every activation of a cell was trained with the same {SETTINGS} settings on the same seeds: learning
rate (the main table's, or {LR_FACTOR:g} of it) x weight decay (the table's, or
{WEIGHT_DECAY_FACTOR:g} times it) x dropout (the table's, or {DROPOUT:g}). The setting with the
highest mean validation accuracy over the seeds was chosen, the first of the grid, which begins with
the table's own, where that is equal. Test nodes chose nothing.

Test accuracy in percent of the chosen setting (*tuned*) and of the table's own (*untuned*), mean ±
standard deviation over seeds (their number in brackets); the best of a cell's tuned means is in
bold. *GReLU - it* compares what each of the two chose, paired by seed, with its 95 % interval; a
star marks what is significant (Wilcoxon test, 5 %, Holm's correction over the cells of a rival; p
is corrected, too). The untuned runs are this record's own, on the same seeds.
"""
TALLY_NOTES = """\
Cells in which GReLU is significantly better or worse than a rival (Holm's correction over the cells
of that rival), and in which its mean is higher at all. Both as they chose:
"""
UNTUNED_NOTES = "Both with the main table's own setting, on the same seeds:\n"


@dataclass(frozen=True)
class TunedRow:
    """One activation of one cell: its scores in percent with the setting that it chose, those with
    the table's own, and GReLU's lead over it.

    ``tried`` settings were there to choose from. The leads over one rival are a family for Holm's
    correction.
    """

    dataset: str
    backbone: str
    activation: str
    mean: float
    std: float
    best: float
    n: int
    lr: float
    weight_decay: float
    dropout: float
    tried: int
    untuned_mean: float | None
    untuned_std: float | None
    grelu_over_it: Comparison | None


def tuned_rows(results: Sequence[Result]) -> list[TunedRow]:
    """A row for each activation, backbone by backbone."""
    found = choices(results)
    leads = grelu_leads({cell: _scores(choice.chosen) for cell, choice in found.items()})
    place = {name: i for i, name in enumerate((*BACKBONES, *NODE_DATASETS))}
    rows = []
    for cell in sorted(found, key=lambda cell: [place.get(n, len(place)) for n in cell[::-1]]):
        for name in ACTIVATIONS:
            if name in found[cell].chosen:
                rows.append(_row(cell, name, found[cell], leads.get(name, {}).get(cell)))
    return rows


def has_choice(record: Path) -> bool:
    """Whether there is a cell of which all activations have finished a setting."""
    return bool(choices(Record(record).read()))


def render_tuned(record: Path) -> list[Path]:
    """Writes ``.md`` and ``.csv`` beside the record, from all runs on record."""
    page, csv = (output.check_file(record.with_suffix(ending)) for ending in (".md", ".csv"))
    results = Record(record).read()
    rows = tuned_rows(results)
    if not rows:
        raise ValueError(f"{record} has no setting yet that all activations of a cell finished.")
    output.write_text(page, document(results, rows, record.name))
    output.write_text(csv, export.to_csv(rows, TunedRow))
    return [page, csv]


def document(results: Sequence[Result], rows: Sequence[TunedRow], source: str) -> str:
    """Everything about a record of the tuned table on one page."""
    of_grid = [result for result in results if place_in_grid(result.config) is not None]
    own = {cell: _scores(choice.own) for cell, choice in choices(of_grid).items()}
    untuned = {rival: leads.values() for rival, leads in grelu_leads(own).items()}
    parts = [
        "# The main table, tuned\n",
        export.provenance(of_grid, source, chain(*map(grid, node_table()))) + "\n",
        NOTES,
        f"{_tried(rows)} {_caution(rows)}".rstrip() + "\n",
        "## GReLU against each rival\n",
        TALLY_NOTES,
        export.tallies_to_markdown(tallies_of(_leads(rows))),
        UNTUNED_NOTES,
        export.tallies_to_markdown(tallies_of(untuned)),
    ]
    head = ("dataset", "activation", "tuned", "lr", "weight decay", "dropout", "untuned")
    for backbone, part in groupby(rows, key=lambda row: row.backbone):
        lines = []
        for _, cell in groupby(part, key=lambda row: row.dataset):
            of_cell = list(cell)
            best = max(row.mean for row in of_cell)
            lines += [_line(row, bold=row.mean == best) for row in of_cell]
        table = export.table((*head, "GReLU - it", "p"), lines, numbers=3)
        parts += [f"## {label(backbone)}\n", table]
    return "\n".join(parts)


def _scores(runs: Mapping[str, Mapping[int, Result]]) -> dict[str, Scores]:
    return {
        name: {seed: run.score for seed, run in by_seed.items()} for name, by_seed in runs.items()
    }


def _row(cell: Cell, name: str, choice: Choice, lead: Comparison | None) -> TunedRow:
    scores, own = _scores(choice.chosen)[name], _scores(choice.own).get(name)
    config = next(iter(choice.chosen[name].values())).config
    untuned = percent(own)[:2] if own else (None, None)
    return TunedRow(
        *(*cell, name, *percent(scores)),
        *(config.lr, config.weight_decay, config.dropout, len(choice.tried)),
        untuned_mean=untuned[0],
        untuned_std=untuned[1],
        grelu_over_it=lead,
    )


def _tried(rows: Sequence[TunedRow]) -> str:
    fewest = min(row.tried for row in rows)
    if fewest == SETTINGS:
        return f"Every cell chose from all {SETTINGS} settings."
    return f"The grid is incomplete: some cells chose from {fewest} of the {SETTINGS} settings."


def _leads(rows: Sequence[TunedRow]) -> dict[str, list[Comparison]]:
    """GReLU's leads over each rival: each is a family of its own."""
    families: dict[str, list[Comparison]] = {}
    for row in rows:
        if row.grelu_over_it is not None:
            families.setdefault(row.activation, []).append(row.grelu_over_it)
    return families


def _caution(rows: Sequence[TunedRow]) -> str:
    sentences = [too_few(leads) for leads in _leads(rows).values()]
    return sentences[0] if sentences and all(sentences) else ""


def _line(row: TunedRow, bold: bool) -> tuple[str, ...]:
    tuned = f"{row.mean:.1f} ± {row.std:.1f} ({row.n})"
    untuned = "" if row.untuned_mean is None else f"{row.untuned_mean:.1f} ± {row.untuned_std:.1f}"
    lead = p = ""
    if row.grelu_over_it is not None:
        mark = "" if row.grelu_over_it.outcome == "undecided" else " *"
        lead, p = amount(row.grelu_over_it) + mark, p_value(row.grelu_over_it.p_holm)
    setting = (f"{value:g}" for value in (row.lr, row.weight_decay, row.dropout))
    names = (label(row.dataset), label(row.activation))
    return *names, f"**{tuned}**" if bold else tuned, *setting, untuned, lead, p
