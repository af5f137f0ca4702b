"""Refreshes what README.md and docs/ say of the records, and the README's figure: make readme.

A generated part stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``; the functions of BLOCKS
write it.
"""

import json
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple, TypeAlias

from graphrelu.lab.record.output import write_text
from graphrelu.lab.record.published import published
from graphrelu.lab.record.recipes import BACKBONES
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export
from graphrelu.lab.render.findings import papers_lead
from graphrelu.lab.render.tables import label
from graphrelu.lab.reproduce import deep, graph, node, strong, structure, tuned
from graphrelu.lab.reproduce.held_out import EXPLORED, is_held_out
from graphrelu.lab.reproduce.shown import OUTCOMES, counts
from graphrelu.lab.reproduce.table import Found, Pair, Row, Table
from graphrelu.lab.stats import Decision

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "results" / "leads"
PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md")
SOCIAL = ("blogcatalog", "flickr")
FOUND = ("holds", "undecided", "does not hold")


@cache
def results(name: str) -> tuple[Result, ...]:
    return tuple(Record(ROOT / "results" / f"{name}.jsonl").read())


@cache
def rows(name: str) -> tuple[Row, ...]:
    """The rows of a table."""
    return tuple(TABLES[name].rows(results(name)))


TABLES: dict[str, Table] = {
    "node": node.TABLE,
    "tuned": tuned.TABLE,
    "deep": deep.TABLE,
    "strong": strong.TABLE,
    "graph": graph.TABLE,
    "structure": structure.TABLE,
}


def benchmark(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "benchmarks" / "results" / name).read_text())


def paragraph(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False) + "\n"


def tally_table() -> str:
    """In how many cells of the main table GReLU is ahead of each rival, on PubMed and elsewhere."""
    parts = {
        "PubMed": [row for row in rows("node") if is_held_out(row.dataset)],
        "tuning": [row for row in rows("node") if not is_held_out(row.dataset)],
    }
    head = ("rival", *(f"{part}: {outcome}" for part in parts for outcome in OUTCOMES))
    rivals = dict.fromkeys(row.name for row in rows("node") if row.name != "grelu")
    lines = [
        (
            label(rival),
            *(
                number
                for own in parts.values()
                for number in counts(row["grelu_over_it"] for row in own if row.name == rival)
            ),
        )
        for rival in rivals
    ]
    return export.table(head, lines, numbers=1)


def main_table() -> str:
    """What the record of the main table holds."""
    graphs, backbones, activations = (
        len({getattr(row, name) for row in rows("node")})
        for name in ("dataset", "backbone", "activation")
    )
    # Of GReLU's rows: a rival's further seeds are not compared with anything.
    compared = [row for row in rows("node") if row["over_relu"] is not None]
    citation = seeds_of([row for row in compared if row.dataset not in SOCIAL])
    social = seeds_of([row for row in compared if row.dataset in SOCIAL])
    return paragraph(
        "`graphrelu reproduce node` runs the paper's main table. Our record of it: "
        f"{graphs} graphs, {backbones} backbones, {activations} activations, compared over "
        f"{citation} seeds on citation graphs and {social} on social ones. In how many of its "
        "cells GReLU is better than a rival, or worse; on PubMed, the one graph that is held out, "
        "and on the tuning graphs, from which nothing follows:"
    )


def seeds_of(own: Sequence[Row]) -> str:
    numbers = sorted({row.n for row in own})
    return " to ".join(map(str, numbers[:1] + numbers[1:][-1:]))


# Over ReLU, by activation: the graph of each cell, its network, and the lead.
Leads: TypeAlias = Mapping[str, Sequence[tuple[str, str, Decision]]]


@cache
def leads_by_regime() -> dict[str, Leads]:
    """Leads over ReLU where labels are few, where they are not, and on generated graphs."""
    generated = [
        row
        for row in rows("structure")
        if (row["kind"], row.name) == ("mirrored", "ReLU") and row["behind_a"] is not None
    ]
    return {
        "few": _over_relu("node"),
        "tuned": _over_relu("tuned"),
        "deep": {name: _leads(rows("deep"), name, "over_relu") for name in deep.ACTIVATIONS},
        "strong": {
            name: _leads(strong.of_table(rows("strong")), name, "over_relu")
            for name in deep.ACTIVATIONS
        },
        "graphs": _over_relu("graph", "folds"),  # the other protocols report what chose
        "generated": {"GReLU": _leads(generated, "ReLU", "behind_a")},
    }


def _leads(own: Iterable[Row], name: str, field: str) -> list[tuple[str, str, Decision]]:
    return [
        (row.dataset, row.backbone, row[field])
        for row in own
        if row.name == name and row[field] is not None
    ]


def _over_relu(name: str, protocol: str | None = None) -> Leads:
    """The leads of PReLU and GReLU over ReLU, each corrected over the cells."""
    found: Found = {}
    for row in rows(name):
        if protocol is None or row["protocol"] == protocol:
            found.setdefault(row.cell, {})[row.name] = row.runs
    made = {}
    for own in ("prelu", "grelu"):
        leads = TABLES[name].leads(found, Pair("", own, "relu", only=own))
        made[label(own)] = [(*cell[:2], lead) for (cell, _), lead in leads.items()]
    return made


REGIMES = {
    "few": "[few labels](results/node.md)",
    "tuned": "[few labels](results/tuned.md), each activation tuned",
    "deep": "[all labels](results/deep.md), 4 or 10 layers, norm, skips",
    "strong": "[settings tuned for ReLU](results/strong.md)",
    "graphs": "[whole graphs](results/graph.md)",
    "generated": "[generated](results/structure.md): equal features, other neighbours",
}


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
    known = {
        of: [one for one in own if is_held_out(one[0]) == held_out and one[0] not in without]
        for of, own in leads_by_regime()[name].items()
    }
    differences = {of: [lead.difference for *_, lead in own] for of, own in known.items() if own}
    if "GReLU" not in differences:
        return None
    means = {
        of: f"{fmean(differences[of]):+.2f}" if of in differences else ""
        for of in ("PReLU", "GELU", "GReLU")
    }
    outcomes = [lead.outcome for *_, lead in known["GReLU"]]
    graphs = [label(dataset) for dataset, *_ in known["GReLU"]]
    return Regime(
        len(outcomes),
        ", ".join(dict.fromkeys(graphs)),
        means,
        f"{median(differences['GReLU']):+.2f}",
        {which: outcomes.count(which) for which in OUTCOMES},
    )


def regimes(held_out: bool = True) -> str:
    """A table of the mean leads, and of GReLU's outcomes."""
    lines = []
    for name, what in REGIMES.items():
        if found := regime(name, held_out):
            of = "" if name == "generated" else f": {found.graphs}"
            counts = map(str, found.counts.values())
            lines.append(
                (f"{what}{of}", str(found.cells), *found.means.values(), found.median, *counts)
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
    return paragraph(
        f"On {', '.join(sorted(map(label, EXPLORED)))} test scores of earlier forms were looked "
        "at, before the study chose among the last ones. Without these graphs, too: "
        f"{'; '.join(parts)}."
    )


def advice() -> str:
    """When to use GReLU and when not, each with the numbers of its regime."""
    found = {name: regime(name) for name in REGIMES}

    def told(name: str) -> str:
        own = found[name]
        if own is None:
            raise ValueError(f"No graph of {name} is held out.")
        return own.told()

    losses = {name: _higher_loss(name) for name in ("deep", "strong")}
    use = (
        f"nodes with equal features must be told apart by their neighbours ({told('generated')});",
    )
    open_ = (
        f"you classify whole graphs ({told('graphs')}; ten folds of a small set decide little);",
        f"labels are few ({told('few')}; with tuned settings {told('tuned')}; all on PubMed, the "
        "one graph that is held out).",
    )
    leave = (
        f"labels are many ({told('deep')}), also if your settings were tuned for ReLU "
        f"({told('strong')});",
        "the test loss matters more than accuracy: PReLU's mean loss is below GReLU's in "
        f"{losses['deep']} deep networks and in {losses['strong']} with settings tuned for ReLU;",
        "the graph is small and time on a GPU matters more than accuracy (see the costs below).",
    )
    parts = {
        "Use GReLU if": use,
        "Try it, with `graphrelu compare`, if": open_,
        "Keep ReLU if": leave,
    }
    return "\n".join(
        f"**{head}**\n\n{''.join(_item(text) for text in items)}" for head, items in parts.items()
    )


def _item(text: str) -> str:
    return (
        textwrap.fill(
            text,
            100,
            initial_indent="- ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )


def _higher_loss(name: str) -> str:
    """In how many cells of deep networks on held-out graphs GReLU's mean test loss is above
    PReLU's."""
    own = strong.of_table(rows(name)) if name == "strong" else rows(name)
    losses = {
        (row.cell, row.name): fmean(run.test_loss for run in row.runs.values())
        for row in own
        if is_held_out(row.dataset)
    }
    cells = [cell for cell, of in losses if of == "GReLU" and (cell, "PReLU") in losses]
    above = sum(losses[cell, "GReLU"] > losses[cell, "PReLU"] for cell in cells)
    return f"{above} of {len(cells)}"


def of_the_paper() -> str:
    """The leads that were found on held-out graphs, the printed ones beside those of the record,
    and the losses."""
    printed = [
        papers_lead("node_classification", "pubmed", backbone)
        for backbone in BACKBONES
        if published("node_classification", "pubmed", backbone, "grelu")
    ]
    own = [
        lead.difference for name, _, lead in leads_by_regime()["few"]["GReLU"] if name == "pubmed"
    ]
    by_loss = node.loss_leads(node.TABLE.found(results("node")))
    told = " and ".join(_by_loss(by_loss, name) for name in ("relu", "prelu"))
    found = {
        what: _ahead(leads_by_regime()[name]["GReLU"])
        for name, what in (
            ("few", "few labels"),
            ("deep", "deep networks"),
            ("graphs", "whole graphs"),
        )
    }
    ahead = "; ".join(f"{what}: {cells or 'none'}" for what, cells in found.items())
    return paragraph(
        f"The cells of held-out graphs in which GReLU is better than ReLU are, with {ahead}. **The "
        "paper's gains with 20 labels per class were not reproduced**: on PubMed the paper prints "
        f"a mean lead of {fmean(printed):+.1f} points over ReLU, and we measure {fmean(own):+.1f}. "
        f"By the test loss, GReLU is {told} there."
    )


def _by_loss(leads: Mapping[Any, Decision], rival: str) -> str:
    own = [lead for (cell, name), lead in leads.items() if name == rival and is_held_out(cell[0])]
    outcomes = [lead.outcome for lead in own]
    return (
        f"better than {label(rival)} in {outcomes.count('better')} of {len(own)} cells, worse in "
        f"{outcomes.count('worse')}"
    )


def _ahead(leads: Iterable[tuple[str, str, Decision]]) -> str:
    """The cells of held-out graphs in which the lead is better."""
    return ", ".join(
        f"{label(dataset)} with {label(backbone)} ({lead.difference:+.1f})"
        for dataset, backbone, lead in leads
        if is_held_out(dataset) and lead.outcome == "better"
    )


def cost() -> str:
    """A training step on a GPU with GReLU, for a large graph and a small one, beside rivals."""
    cases = benchmark("cases_h200.json")["milliseconds"]
    large = cases["GCN, 1,000,000 nodes, 10,000,000 edges"]
    small = cases["small graph: GCN, 3,300 nodes, 9,100 edges"]
    graphed = cases["make_graphed_callables: GCN, 3,300 nodes, 9,100 edges"]
    added = {name: 100 * (large[name] / large["ReLU"] - 1) for name in ("GReLU", "Maxout")}
    times = {name: small[name] / small["ReLU"] for name in ("GReLU", "Maxout")}
    return paragraph(
        "**What does it cost?** O(|E| + C|V|), as the paper promises: features are never diffused. "
        "In a training step of a GCN with a million nodes and ten million edges on an H200 GReLU "
        f"adds {added['GReLU']:.1f} % to the time with ReLU, Maxout {added['Maxout']:.1f} %. On a "
        "small graph a GPU waits for the host, and launches count: with 3,300 nodes a step takes "
        f"{times['GReLU']:.1f} times as long as with ReLU, with Maxout {times['Maxout']:.1f} "
        "times. On a graph that stays the same, [one line](docs/cost.md#what-bounds-it), "
        "`torch.cuda.make_graphed_callables`, makes that "
        f"{graphed['GReLU'] / graphed['ReLU']:.2f} times, and both faster: with GReLU "
        f"{graphed['GReLU']:.1f} ms instead of {small['GReLU']:.1f}, with ReLU "
        f"{graphed['ReLU']:.1f} instead of {small['ReLU']:.1f} "
        "([all timings](benchmarks/results/README.md))."
    )


def seeds() -> str:
    """All seeds of a cell at once, against a loop; and how much of that is sparsity."""
    seconds = benchmark("seeds_cpu.json")["seconds"]
    loop, sparse, together = (
        seconds[name] for name in ("one_by_one", "one_by_one_sparse", "at_once")
    )
    return paragraph(
        "It prints a table of six activations, with the same splits, seeds and settings for each, "
        "differences paired by seed, and one sentence of verdict. All seeds train at once: ten "
        f"seeds of a GCN on Cora take {together:.1f} s of one core, in a PyG loop {loop:.1f} s. Of "
        f"these {loop / together:.1f} times, sparse features are {loop / sparse:.1f}, which the "
        f"loop could have, too; training the seeds together is {sparse / together:.1f} "
        "([record](benchmarks/results/seeds_cpu.json))."
    )


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
        r"<!-- (\w+) -->\n.*?<!-- /\1 -->",
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
