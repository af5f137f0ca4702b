"""The paper's ablation tables: GReLU's variants, ReLU and SGC on Flickr with GCN.

Two rows are not in the paper: GReLU as printed, and the undecomposed hyperfunction, which the paper
rejects without a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from graphrelu.grelu import VARIANTS
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.published import published
from graphrelu.lab.record.recipes import family_of, recipe
from graphrelu.lab.record.results import Result
from graphrelu.lab.render import export, figures, findings
from graphrelu.lab.render.findings import Observation
from graphrelu.lab.render.tables import NodeRow, beside_paper, label, marked, measured, signed
from graphrelu.lab.reproduce.experiment import Experiment, Place, Table
from graphrelu.lab.stats.comparison import compared
from graphrelu.lab.stats.decision import Decision
from graphrelu.lab.stats.splits import Splits

PRINTED, UNDECOMPOSED = "GReLU-A, as printed", "undecomposed"

TABLES = {
    "topology and non-linearity (the paper's Table 3)": (
        *("GReLU-A", "GReLU-B", "GReLU-C", "GReLU-D"),
        *("ReLU", "SGC"),
    ),
    "intercepts, nodes and channels (the paper's Table 4)": (
        *("GReLU-A", "GReLU-E", "GReLU-F", "GReLU-G"),
    ),
    "not in the paper's tables": ("GReLU-A", PRINTED, UNDECOMPOSED, "ReLU"),
}
CLAIMS = (
    ("GReLU-A", "GReLU-B"),
    ("GReLU-C", "GReLU-D"),
    ("GReLU-A", "GReLU-C"),
    ("GReLU-A", "GReLU-E"),
    ("GReLU-A", "GReLU-F"),
    ("GReLU-A", "GReLU-G"),
    ("GReLU-B", "ReLU"),
    ("GReLU-C", "SGC"),
    ("GReLU-D", "SGC"),
    ("GReLU-A", UNDECOMPOSED),
)

LOSS_NOTES = """\
Losses are cross-entropies in nats, means over seeds, at the epoch that the validation loss chose,
without dropout. The gap shows overfitting; the training loss alone does not.
"""


@dataclass(frozen=True)
class AblationRow(NodeRow):
    """One variant, with its losses in nats and A's lead over the variant. Each column of leads is
    one family for Holm's correction."""

    train_loss: float
    test_loss: float
    behind_a: Decision | None


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """The rows of the tables; A and ReLU are cells of the main table."""

    def cell(activation: str, backbone: str = "gcn", **options: object) -> Config:
        family = family_of(dataset)
        return recipe(dataset, family, backbone, activation, activation_options=options, **changes)

    configs = {f"GReLU-{name}": cell("grelu", **options) for name, options in VARIANTS.items()}
    configs |= {PRINTED: cell("grelu", mode="paper"), UNDECOMPOSED: cell("undecomposed")}
    configs |= {"ReLU": cell("relu"), "SGC": cell("none", "sgc")}
    return {((dataset, "gcn"), name): config for name, config in configs.items()}


TABLE = Table("ablation", "of the ablation", ("flickr",), cells)


def ablation_rows(results: Sequence[Result]) -> list[AblationRow]:
    """A row for each variant that was run."""
    train, test = (TABLE.scores(results, attrgetter(f"{n}_loss")) for n in ("train", "test"))
    rows, splits = [], TABLE.splits(results)
    for cell, scores in TABLE.scores(results).items():
        first, relu = scores.get("GReLU-A", {}), scores.get("ReLU", {})
        behind = {name: (first, own) for name, own in scores.items() if name != "GReLU-A"}
        over = {name: (own, relu) for name, own in scores.items() if name != "ReLU"}
        behind_a, over_relu = (compared(pairs, splits[cell]) for pairs in (behind, over))
        rows += [
            AblationRow(
                **beside_paper("ablation", *(*cell, name, own)),
                train_loss=fmean(train[cell][name].values()),
                test_loss=fmean(test[cell][name].values()),
                behind_a=behind_a.get(name),
                over_relu=over_relu.get(name),
            )
            for name, own in scores.items()
        ]
    return rows


def observations(results: Sequence[Result], dataset: str) -> list[Observation]:
    """The paper's claims about its variants, held against the runs on one graph."""
    scores = TABLE.scores(results).get((dataset, "gcn"), {})
    splits = TABLE.splits(results).get((dataset, "gcn"), Splits())
    leads = compared({(a, b): (scores.get(a, {}), scores.get(b, {})) for a, b in CLAIMS}, splits)
    found = []
    for pair in CLAIMS:
        papers = [published("ablation", "flickr", "gcn", name) for name in pair]
        difference = "no figure"
        if papers[0] and papers[1]:
            difference = f"{signed(papers[0].mean - papers[1].mean)} points"
        own = [leads[pair]] if pair in leads else []
        ours = "".join(map(measured, own))
        found.append(Observation(" > ".join(pair), difference, findings.in_all(own), ours))
    return [*found, _overfitting(results, dataset)]


def render(record: Path) -> list[Path]:
    """The tables as a page and as CSV."""
    results = TABLE.read(record)
    rows = ablation_rows(results)
    parts = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        by_name = {row.activation: row for row in rows if row.dataset == dataset}
        for title, names in TABLES.items():
            lines = [_line(by_name[name]) for name in names if name in by_name]
            head = ("variant", "ours", "paper", "A - it", "it - ReLU")
            parts += [f"## {label(dataset)}: {title}\n", export.table(head, lines, numbers=1)]
        columns = ("variant", "training loss", "test loss", "gap")
        losses = export.table(columns, map(_losses, by_name.values()), numbers=1)
        found = findings.to_markdown(observations(results, dataset))
        parts += [f"## {label(dataset)}: losses\n", LOSS_NOTES, losses]
        parts += [f"## {label(dataset)}: what the paper observes\n", findings.RULE, found]
    leads = [(row.dataset, lead) for row in rows for lead in (row.behind_a, row.over_relu)]
    rule = findings.rule("a column", leads)
    page = TABLE.text(results, record, rule=rule, graphs="\n".join(parts))
    return figures.write(record, page, rows, AblationRow)


def _line(row: AblationRow) -> tuple[str, ...]:
    ours, paper = export.table_line(row)[2:4]
    return row.activation, ours, paper, marked(row.behind_a), marked(row.over_relu)


def _losses(row: AblationRow) -> tuple[str, ...]:
    losses = (row.train_loss, row.test_loss, row.test_loss - row.train_loss)
    return row.activation, *(f"{loss:.2f}" for loss in losses)


def _overfitting(results: Sequence[Result], dataset: str) -> Observation:
    """The gap between test and training loss of both hyperfunctions, paired by seed."""
    # A comparison is in percent.
    found = TABLE.scores(results, lambda run: (run.test_loss - run.train_loss) / 100)
    gaps = [
        {seed: gap for seed, gap in own.items() if math.isfinite(gap)}
        for name in (UNDECOMPOSED, "GReLU-A")
        for own in [found.get((dataset, "gcn"), {}).get(name, {})]
    ]
    splits = TABLE.splits(results).get((dataset, "gcn"), Splits())
    leads = list(compared({0: (gaps[0], gaps[1])}, splits, margin=0).values())
    ours = ""
    for lead in leads:
        interval = "" if lead.low is None else f" [{lead.low:+.2f}, {lead.high:+.2f}]"
        ours = f"{lead.difference:+.2f}{interval} nats over {lead.n} seeds"
    claim = f"{UNDECOMPOSED} overfits: a larger gap between test and training loss than A's"
    return Observation(claim, "no figure", findings.in_all(leads), ours)


EXPERIMENT = Experiment(runs=30, quick_runs=6, collect=TABLE.collect, render=render)
