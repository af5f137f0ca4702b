"""The paper's ablation tables: GReLU's variants, ReLU and SGC on Flickr with GCN.

Two rows are not in the paper: GReLU as printed, and the undecomposed hyperfunction, which the paper
rejects without a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from graphrelu.grelu import VARIANTS
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.published import published
from graphrelu.lab.record.recipes import family_of, recipe
from graphrelu.lab.render import export, findings
from graphrelu.lab.render.findings import Observation
from graphrelu.lab.render.tables import marked, measured, signed
from graphrelu.lab.reproduce import shown
from graphrelu.lab.reproduce.table import Found, Pair, Place, Row, Table, beside_paper
from graphrelu.lab.stats import Splits, compared

PRINTED, UNDECOMPOSED = "GReLU-A, as printed", "undecomposed"

TABLES = {
    "Topology and non-linearity (the paper's Table 3)": (
        *("GReLU-A", "GReLU-B", "GReLU-C", "GReLU-D"),
        *("ReLU", "SGC"),
    ),
    "Intercepts, nodes and channels (the paper's Table 4)": (
        *("GReLU-A", "GReLU-E", "GReLU-F", "GReLU-G"),
    ),
    "Not in the paper's tables": ("GReLU-A", PRINTED, UNDECOMPOSED, "ReLU"),
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


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """The rows of the tables; A and ReLU are cells of the main table."""

    def cell(activation: str, backbone: str = "gcn", **options: object) -> Config:
        family = family_of(dataset)
        return recipe(dataset, family, backbone, activation, activation_options=options, **changes)

    configs = {f"GReLU-{name}": cell("grelu", **options) for name, options in VARIANTS.items()}
    configs |= {PRINTED: cell("grelu", mode="paper"), UNDECOMPOSED: cell("undecomposed")}
    configs |= {"ReLU": cell("relu"), "SGC": cell("none", "sgc")}
    return {((dataset, "gcn"), name): config for name, config in configs.items()}


def values(row: Row) -> dict[str, Any]:
    """The paper's number, and the losses in nats."""
    losses = {
        name: fmean(getattr(run, name) for run in row.runs.values())
        for name in ("train_loss", "test_loss")
    }
    return beside_paper("ablation", row) | losses


def observations(rows: Sequence[Row]) -> list[Observation]:
    """The paper's claims about its variants, held against the runs."""
    own = {row.name: row for row in rows}
    leads = shown.leads_between(own, CLAIMS)
    found = []
    for pair in CLAIMS:
        papers = [published("ablation", "flickr", "gcn", name) for name in pair]
        figure = "no figure"
        if papers[0] and papers[1]:
            figure = f"{signed(papers[0].mean - papers[1].mean)} points"
        known = [leads[pair]] if pair in leads else []
        ours = "".join(map(measured, known))
        found.append(Observation(" > ".join(pair), figure, findings.in_all(known), ours))
    gaps = [_gaps(own[name]) if name in own else {} for name in (UNDECOMPOSED, "GReLU-A")]
    splits = own["GReLU-A"].splits if "GReLU-A" in own else Splits()
    gap_leads = list(compared({0: (gaps[0], gaps[1])}, splits, margin=0).values())
    ours = ""
    for lead in gap_leads:
        interval = "" if lead.low is None else f" [{lead.low:+.2f}, {lead.high:+.2f}]"
        ours = f"{lead.difference:+.2f}{interval} nats over {lead.n} seeds"
    claim = f"{UNDECOMPOSED} overfits: a larger gap between test and training loss than A's"
    return [*found, Observation(claim, "no figure", findings.in_all(gap_leads), ours)]


def _gaps(row: Row) -> dict[int, float]:
    """Between test and training loss by seed, in hundreds of nats: a comparison is in percent."""
    gaps = {seed: (run.test_loss - run.train_loss) / 100 for seed, run in row.runs.items()}
    return {seed: gap for seed, gap in gaps.items() if math.isfinite(gap)}


def page(rows: list[Row], all_runs: Found) -> dict[str, Any]:
    by_name = {row.name: row for row in rows}
    head = ("variant", "ours", "paper", "A - it", "it - ReLU")
    tables = []
    for title, names in TABLES.items():
        lines = [_line(by_name[name]) for name in names if name in by_name]
        tables.append(f"## {title}\n\n{export.table(head, lines, numbers=1)}")
    columns = ("variant", "training loss", "test loss", "gap")
    return {
        "tables": "\n".join(tables),
        "losses": export.table(columns, map(_losses, rows), numbers=1),
        "claims_rule": findings.RULE,
        "findings": findings.to_markdown(observations(rows)),
    }


def _line(row: Row) -> tuple[str, ...]:
    leads = (marked(row["behind_a"]), marked(row["over_relu"]))
    return row.name, shown.accuracy(row), shown.papers(row), *leads


def _losses(row: Row) -> tuple[str, ...]:
    losses = (row["train_loss"], row["test_loss"], row["test_loss"] - row["train_loss"])
    return row.name, *(f"{loss:.2f}" for loss in losses)


TABLE = Table(
    name="ablation",
    datasets=("flickr",),
    cells=cells,
    runs=30,
    quick_runs=6,
    pairs=(
        Pair("behind_a", "GReLU-A", None, family=lambda cell, name: cell),
        Pair("over_relu", None, "ReLU", family=lambda cell, name: cell),
    ),
    columns=(
        *("paper_mean", "paper_std", "difference"),
        *("over_relu", "train_loss", "test_loss", "behind_a"),
    ),
    page=page,
    values=values,
)
