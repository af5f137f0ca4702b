"""Refreshes what README.md and docs/ say of the records, and the README's figure: make readme.

A generated part stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``; the functions of BLOCKS
write it, with the words of readme.md beside this file.
"""

import json
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from graphrelu.lab.record.output import write_text
from graphrelu.lab.record.published import published
from graphrelu.lab.record.recipes import BACKBONES
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export
from graphrelu.lab.render.findings import papers_lead
from graphrelu.lab.render.tables import label
from graphrelu.lab.reproduce import deep, graph, node, shown, strong, structure, tuned
from graphrelu.lab.reproduce.held_out import EXPLORED, is_held_out
from graphrelu.lab.reproduce.shown import OUTCOMES, counts
from graphrelu.lab.reproduce.table import Pair, Row
from graphrelu.lab.stats import Decision

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "results" / "leads"
PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md")
SOCIAL = ("blogcatalog", "flickr")
FOUND = ("holds", "undecided", "does not hold")
TABLES = {
    module.TABLE.name: module.TABLE for module in (node, tuned, deep, strong, graph, structure)
}
PART = r"<!-- (\w+) -->\n(.*?)<!-- /\1 -->"
WORDS = dict(re.findall(PART, Path(__file__).with_suffix(".md").read_text(), re.DOTALL))


@cache
def results(name: str) -> tuple[Result, ...]:
    return tuple(Record(ROOT / "results" / f"{name}.jsonl").read())


@cache
def rows(name: str) -> tuple[Row, ...]:
    """The rows of a table, without those of the figure of strong networks."""
    found = TABLES[name].rows(results(name))
    return tuple(strong.of_table(found) if name == "strong" else found)


def benchmark(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "benchmarks" / "results" / name).read_text())


def told(name: str, **numbers: Any) -> str:
    """The words of a part, with its numbers, in lines of 100 characters."""
    lines = WORDS[name].format(**numbers).splitlines()
    indents = ["  " if line.startswith("- ") else "" for line in lines]
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    filled = [
        textwrap.fill(line, 100, subsequent_indent=indent, **options)
        for line, indent in zip(lines, indents, strict=True)
    ]
    return "\n".join(filled) + "\n"


def tally_table() -> str:
    """In how many cells of the main table GReLU is ahead of each rival, on PubMed and elsewhere."""
    parts = {"PubMed": True, "tuning": False}
    head = ("rival", *(f"{part}: {outcome}" for part in parts for outcome in OUTCOMES))
    lines = []
    for rival in dict.fromkeys(row.name for row in rows("node") if row.name != "grelu"):
        own = [row for row in rows("node") if row.name == rival]
        found = (
            counts(row["grelu_over_it"] for row in own if is_held_out(row.dataset) == held_out)
            for held_out in parts.values()
        )
        lines.append((label(rival), *(number for part in found for number in part)))
    return export.table(head, lines, numbers=1)


def main_table() -> str:
    """What the record of the main table holds."""
    own = rows("node")
    # Of GReLU's rows: a rival's further seeds are not compared with anything.
    compared = [row for row in own if row["over_relu"] is not None]
    return told(
        "node",
        graphs=len({row.dataset for row in own}),
        backbones=len({row.backbone for row in own}),
        activations=len({row.activation for row in own}),
        citation=seeds_of(row for row in compared if row.dataset not in SOCIAL),
        social=seeds_of(row for row in compared if row.dataset in SOCIAL),
    )


def seeds_of(own: Iterable[Row]) -> str:
    numbers = sorted({row.n for row in own})
    return " to ".join(map(str, numbers[:1] + numbers[1:][-1:]))


# The tables that have leads over ReLU where labels are few, where they are not, and on generated
# graphs.
REGIMES = {
    "node": "[few labels](results/node.md)",
    "tuned": "[few labels](results/tuned.md), each activation tuned",
    "deep": "[all labels](results/deep.md), 4 or 10 layers, norm, skips",
    "strong": "[settings tuned for ReLU](results/strong.md)",
    "graph": "[whole graphs](results/graph.md)",
    "structure": "[generated](results/structure.md): equal features, other neighbours",
}


class Lead(NamedTuple):
    """The lead of an activation over ReLU in a cell."""

    activation: str
    dataset: str
    backbone: str
    lead: Decision


@cache
def leads(name: str) -> tuple[Lead, ...]:
    """All leads over ReLU of a table, those of an activation corrected over the cells."""
    return tuple(lead for lead in _leads(name) if lead.lead is not None)


def _leads(name: str) -> Iterator[Lead]:
    own = rows(name)
    if name == "structure":
        for row in own:
            if (row["kind"], row.name) == ("mirrored", "ReLU"):
                yield Lead("GReLU", row.dataset, row.backbone, row["behind_a"])
    elif name in ("deep", "strong"):
        for row in own:
            yield Lead(row.name, row.dataset, row.backbone, row["over_relu"])
    else:
        # The other protocols of sets of graphs report what chose.
        cells = shown.by_cell(row for row in own if row["protocol"] in (None, "folds"))
        found = {cell: {of: row.runs for of, row in part.items()} for cell, part in cells.items()}
        for (cell, of), lead in TABLES[name].leads(found, Pair("", None, "relu")).items():
            yield Lead(label(of), *cell[:2], lead)


class Regime(NamedTuple):
    """The leads over ReLU in some cells, in short."""

    cells: int
    graphs: str
    means: dict[str, str]
    median: str
    counts: dict[str, int]  # GReLU's outcomes

    def told(self) -> str:
        rival = f", PReLU {self.means['PReLU']}" if self.means["PReLU"] else ""
        return (
            f"GReLU {self.means['GReLU']}, median {self.median}{rival}; better in "
            f"{self.counts['better']} of {self.cells} cells, worse in {self.counts['worse']}"
        )


def regime(name: str, held_out: bool = True, without: Collection[str] = ()) -> Regime | None:
    """The cells of held-out graphs, or of tuning graphs; none where there is no such graph."""
    known = [
        one
        for one in leads(name)
        if is_held_out(one.dataset) == held_out and one.dataset not in without
    ]
    differences: dict[str, list[float]] = {}
    for one in known:
        differences.setdefault(one.activation, []).append(one.lead.difference)
    own = [one for one in known if one.activation == "GReLU"]
    if not own:
        return None
    outcomes = [one.lead.outcome for one in own]
    return Regime(
        len(own),
        ", ".join(dict.fromkeys(label(one.dataset) for one in own)),
        {
            of: f"{fmean(differences[of]):+.2f}" if of in differences else ""
            for of in ("PReLU", "GELU", "GReLU")
        },
        f"{median(differences['GReLU']):+.2f}",
        {which: outcomes.count(which) for which in OUTCOMES},
    )


def regimes(held_out: bool = True) -> str:
    """A table of the mean leads, and of GReLU's outcomes."""
    lines = []
    for name, what in REGIMES.items():
        if found := regime(name, held_out):
            of = "" if name == "structure" else f": {found.graphs}"
            numbers = map(str, found.counts.values())
            lines.append(
                (f"{what}{of}", str(found.cells), *found.means.values(), found.median, *numbers)
            )
    head = ("networks and graphs", "cells", "PReLU", "GELU", "GReLU", "median", *OUTCOMES)
    return export.table(head, lines, numbers=1)


def tuning_regimes() -> str:
    """The same on the tuning graphs; the pages are beside this one's folder."""
    return regimes(held_out=False).replace("](results/", "](../results/")


def explored() -> str:
    """What is left of the leads where no graph was looked at before."""
    parts = []
    for name, what in (("deep", "networks as people train them"), ("strong", "strong networks")):
        if found := regime(name, without=EXPLORED):
            parts.append(f"in {what} {found.told()} ({found.graphs})")
    graphs = ", ".join(sorted(map(label, EXPLORED)))
    return told("explored", graphs=graphs, parts="; ".join(parts))


def advice() -> str:
    """When to use GReLU and when not, each with the numbers of its regime."""
    found = {name: regime(name) for name in REGIMES}
    losses = {f"{name}_loss": _higher_loss(name) for name in ("deep", "strong")}
    return told("advice", **{name: own.told() for name, own in found.items() if own}, **losses)


def _higher_loss(name: str) -> str:
    """In how many cells of held-out graphs GReLU's mean test loss is above PReLU's."""
    pairs = [
        [fmean(run.test_loss for run in own[of].runs.values()) for of in ("GReLU", "PReLU")]
        for cell, own in shown.by_cell(rows(name)).items()
        if is_held_out(cell.dataset) and own.keys() >= {"GReLU", "PReLU"}
    ]
    return f"{sum(grelu > prelu for grelu, prelu in pairs)} of {len(pairs)}"


def of_the_paper() -> str:
    """The leads that were found on held-out graphs, the printed ones beside those of the record,
    and the losses."""
    printed = [
        papers_lead("node_classification", "pubmed", backbone)
        for backbone in BACKBONES
        if published("node_classification", "pubmed", backbone, "grelu")
    ]
    ahead = {
        name: [one for one in leads(name) if one.activation == "GReLU" and is_held_out(one.dataset)]
        for name in ("node", "deep", "graph")
    }
    by_loss = node.loss_leads(node.TABLE.found(results("node")))
    outcomes: dict[str, list[str]] = {"relu": [], "prelu": []}
    for (cell, rival), lead in by_loss.items():
        if rival in outcomes and is_held_out(cell[0]):
            outcomes[rival].append(lead.outcome)
    return told(
        "gains",
        printed=fmean(printed),
        own=fmean(one.lead.difference for one in ahead["node"] if one.dataset == "pubmed"),
        by_loss=" and ".join(
            f"better than {label(rival)} in {own.count('better')} of {len(own)} cells, worse in "
            f"{own.count('worse')}"
            for rival, own in outcomes.items()
        ),
        **{name: _better(own) or "none" for name, own in ahead.items()},
    )


def _better(found: Sequence[Lead]) -> str:
    return ", ".join(
        f"{label(one.dataset)} with {label(one.backbone)} ({one.lead.difference:+.1f})"
        for one in found
        if one.lead.outcome == "better"
    )


def cost() -> str:
    """A training step on a GPU with GReLU, for a large graph and a small one, beside rivals."""
    cases = benchmark("cases_h200.json")["milliseconds"]
    large = cases["GCN, 1,000,000 nodes, 10,000,000 edges"]
    small = cases["small graph: GCN, 3,300 nodes, 9,100 edges"]
    graphed = cases["make_graphed_callables: GCN, 3,300 nodes, 9,100 edges"]
    return told(
        "cost",
        added={name: 100 * (large[name] / large["ReLU"] - 1) for name in ("GReLU", "Maxout")},
        times={name: small[name] / small["ReLU"] for name in ("GReLU", "Maxout")},
        graphed_times=graphed["GReLU"] / graphed["ReLU"],
        graphed=graphed,
        small=small,
    )


def seeds() -> str:
    """All seeds of a cell at once, against a loop; and how much of that is sparsity."""
    names = ("one_by_one", "one_by_one_sparse", "at_once")
    loop, sparse, together = (benchmark("seeds_cpu.json")["seconds"][name] for name in names)
    times = {"of_sparse": loop / sparse, "of_together": sparse / together}
    return told("seeds", together=together, loop=loop, both=loop / together, **times)


def claims() -> str:
    """How the paper's observations fare, counted from the page that lists them."""
    page = (ROOT / "results" / "observations.md").read_text()
    sections = re.findall(r"^## (.+)\n\n((?:\|.*\n)+)", page, re.MULTILINE)
    lines = [
        (title, *(str(rows.count(f"| **{word}** |")) for word in FOUND)) for title, rows in sections
    ]
    return export.table(("the paper's claims about", *FOUND), lines, numbers=1)


BLOCKS = {
    "node": main_table,
    "tallies": tally_table,
    "regimes": regimes,
    "tuning": tuning_regimes,
    "explored": explored,
    "advice": advice,
    "gains": of_the_paper,
    "cost": cost,
    "seeds": seeds,
    "claims": claims,
}


def refreshed(text: str) -> str:
    """The page with every generated part made anew; a part without a function is an error."""
    return re.sub(
        PART,
        lambda found: f"<!-- {found[1]} -->\n\n{BLOCKS[found[1]]()}\n<!-- /{found[1]} -->",
        text,
        flags=re.DOTALL,
    )


def main() -> None:
    for path in PAGES:
        write_text(path, refreshed(path.read_text()))
    node.write_leads(rows("node"), FIGURE)


if __name__ == "__main__":
    main()
