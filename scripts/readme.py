"""Refreshes what README.md and docs/ say of the records, and the README's figure: make readme.

A generated part stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``; the functions of BLOCKS
write it.
"""

import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias, TypeVar

from graphrelu.lab.record.output import write_text
from graphrelu.lab.record.published import published
from graphrelu.lab.record.recipes import BACKBONES, NODE_DATASETS
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export
from graphrelu.lab.render.tables import NodeRow, label, loss_tallies, node_rows, tallies
from graphrelu.lab.reproduce import deep, graph, node, strong, structure, tuning
from graphrelu.lab.stats.comparison import Scores, leads_over, scores_by_cell
from graphrelu.lab.stats.decision import Decision

ROOT = Path(__file__).parents[1]
NODE_RECORD = ROOT / "results" / "node.jsonl"
FIGURE = ROOT / "results" / "leads"
PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md")
SOCIAL = ("blogcatalog", "flickr")
FOUND = ("holds", "undecided", "does not hold")


@cache
def node_results() -> tuple[Result, ...]:
    return tuple(Record(NODE_RECORD).read())


@cache
def main_rows() -> tuple[NodeRow, ...]:
    return tuple(node_rows(node_results()))


def benchmark(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "benchmarks" / "results" / name).read_text())


def paragraph(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False) + "\n"


@cache
def tally_table() -> str:
    """In how many cells of the main table GReLU is ahead of each rival."""
    head = ("rival", "GReLU significantly better", "undecided", "significantly worse")
    lines = [
        (label(count.rival), *map(str, (count.won, count.tied, count.lost)))
        for count in tallies(node_results())
    ]
    return export.table(head, lines, numbers=1)


def main_table() -> str:
    """What the record of the main table holds."""
    rows = main_rows()
    graphs, backbones, activations = (
        len({getattr(row, name) for row in rows}) for name in ("dataset", "backbone", "activation")
    )
    # Of GReLU's rows: a rival's further seeds are not compared with anything.
    compared = [row for row in rows if row.over_relu is not None]
    citation = seeds_of([row for row in compared if row.dataset not in SOCIAL])
    social = seeds_of([row for row in compared if row.dataset in SOCIAL])
    return paragraph(
        "`graphrelu reproduce node` runs the paper's main table. Our record of it: "
        f"{graphs} graphs, {backbones} backbones, {activations} activations, compared over "
        f"{citation} seeds on citation graphs and {social} on social ones. In how many of its "
        "cells GReLU is significantly better than a rival, or worse, with Holm's correction over "
        "the cells of that rival:"
    )


def seeds_of(rows: Sequence[NodeRow]) -> str:
    numbers = sorted({row.n for row in rows})
    return " to ".join(map(str, numbers[:1] + numbers[1:][-1:]))


Leads: TypeAlias = Mapping[str, Sequence[Decision | None]]  # over ReLU, by activation


@cache
def leads_by_regime() -> dict[str, Leads]:
    """Leads over ReLU where labels are few, where they are not, and on generated graphs."""
    of_node = _leads(scores_by_cell(node_results()))
    citation, social = (
        {
            name: [lead for cell, lead in own.items() if (cell[0] in SOCIAL) == is_social]
            for name, own in of_node.items()
        }
        for is_social in (False, True)
    )
    generated = [
        row.behind_a
        for row in structure.structure_rows(Record(ROOT / "results" / "structure.jsonl").read())
        if row.kind == "mirrored" and row.activation == "ReLU"
    ]
    return {
        "citation": citation,
        "social": social,
        "tuned": _listed(_tuned()),
        "deep": _deep("deep"),
        "strong": _deep("strong"),
        "graphs": _listed(_graphs()),
        "generated": {"GReLU": generated},
    }


REGIMES = {
    "citation": "[few labels](results/node.md): Cora, CiteSeer, PubMed",
    "social": "[few labels](results/node.md): BlogCatalog, Flickr",
    "tuned": "[few labels](results/tuned.md), each activation tuned",
    "deep": "[all labels](results/deep.md), 4 or 10 layers, norm, skips",
    "strong": "[settings tuned for ReLU](results/strong.md)",
    "graphs": "[whole graphs](results/graph.md): MUTAG, PROTEINS",
    "generated": "[generated](results/structure.md): equal features, other neighbours",
}


def regimes() -> str:
    """A table of the mean leads, and of GReLU's significant ones."""
    lines = [_regime(what, leads_by_regime()[name]) for name, what in REGIMES.items()]
    head = ("networks and graphs", "cells", "PReLU", "GELU", "GReLU", "better", "worse")
    return export.table(head, lines, numbers=1)


def advice() -> str:
    """When to use GReLU and when not, each with the numbers of its regime."""
    found = {name: _regime("", leads) for name, leads in leads_by_regime().items()}

    def told(name: str) -> str:
        _, cells, prelu, _, grelu, better, worse = found[name]
        rival = f", PReLU {prelu}" if prelu else ""
        return f"GReLU {grelu}{rival}; better in {better} of {cells} cells, worse in {worse}"

    losses = {name: _higher_loss(name) for name in ("deep", "strong")}
    use = (
        f"nodes with equal features must be told apart by their neighbours ({told('generated')});",
        f"you classify whole graphs with GCN or SAGE ({told('graphs')}; with GIN nothing was "
        "gained);",
        "neighbours tend to have other labels, the network is deep and labels are many "
        f"({told('deep')}).",
    )
    leave = (
        f"your settings were tuned for ReLU ({told('strong')}), or for each activation "
        f"({told('tuned')});",
        f"labels are few on a social network ({told('social')}). On a citation graph with few "
        f"labels the gain is small ({told('citation')});",
        "the test loss matters more than accuracy: PReLU's mean loss is below GReLU's in "
        f"{losses['deep']} deep networks and in {losses['strong']} with settings tuned for ReLU;",
        "the graph is small and time on a GPU matters more than accuracy (see the costs below).",
    )
    return "\n".join(
        f"**{head} if**\n\n{''.join(_item(text) for text in items)}"
        for head, items in (("Use GReLU", use), ("Do not use GReLU", leave))
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
    """In how many cells of deep networks GReLU's mean test loss is above PReLU's."""
    table = {"deep": deep.TABLE, "strong": strong.TABLE}[name]
    runs = Record(ROOT / "results" / f"{name}.jsonl").read()
    losses = table.scores(runs, lambda run: run.test_loss)
    others = {row.cell for row in strong.depth_rows()} if name == "strong" else set()
    of_rows = [own for cell, own in losses.items() if cell not in others]
    both = [own for own in of_rows if {"PReLU", "GReLU"} <= own.keys()]
    above = sum(fmean(own["GReLU"].values()) > fmean(own["PReLU"].values()) for own in both)
    return f"{above} of {len(both)}"


Key = TypeVar("Key")


def _leads(cells: Mapping[Key, Mapping[str, Scores]]) -> dict[str, dict[Key, Decision]]:
    """The leads over ReLU of PReLU and GReLU, with Holm's correction over these cells."""
    return {label(name): leads_over(cells, name, "relu") for name in ("prelu", "grelu")}


def _listed(leads: Mapping[str, Mapping[Key, Decision]]) -> dict[str, list[Decision]]:
    return {name: list(own.values()) for name, own in leads.items()}


def _tuned() -> dict[str, dict[tuning.Cell, Decision]]:
    found = tuning.choices(Record(ROOT / "results" / "tuned.jsonl").read())
    scores = {
        cell: {
            name: {seed: run.score for seed, run in runs.items()}
            for name, runs in choice.chosen.items()
        }
        for cell, choice in found.items()
    }
    return _leads(scores)


@cache
def _graphs() -> dict[str, dict[graph.Cell, Decision]]:
    """By the paper's protocol: the other one reports the graphs that choose."""
    results = [
        result
        for result in Record(ROOT / "results" / "graph.jsonl").read()
        if result.config.split == "folds"
    ]
    scores = {
        cell: {
            name: {run.seed: run.score for run in results if run.config == config}
            for name, config in choice.configs.items()
        }
        for cell, choice in graph.choices(results).items()
    }
    return _leads(scores)


def _deep(name: str) -> dict[str, list[Decision | None]]:
    """The leads over ReLU of a record of deep networks."""
    results = Record(ROOT / "results" / f"{name}.jsonl").read()
    rows: list[Any] = deep.deep_rows(results)
    if name == "strong":
        rows = strong.of_table(strong.strong_rows(results))
    return {
        one: [row.over_relu for row in rows if row.activation == one] for one in deep.ACTIVATIONS
    }


def _regime(what: str, leads: Leads) -> tuple[str, ...]:
    """A line: the mean leads of three activations, and in how many cells GReLU's is significant."""
    known = {name: [lead for lead in own if lead is not None] for name, own in leads.items()}
    means = [
        f"{fmean(lead.difference for lead in known[name]):+.2f}" if known.get(name) else ""
        for name in ("PReLU", "GELU", "GReLU")
    ]
    outcomes = [lead.outcome for lead in known["GReLU"]]
    counts = (str(outcomes.count(which)) for which in ("better", "worse"))
    return what, str(len(outcomes)), *means, *counts


def of_the_paper() -> str:
    """Where the gains are, the printed ones beside those of the record, and the losses."""
    printed = [
        ours.mean - relu.mean
        for dataset in NODE_DATASETS
        if dataset not in SOCIAL
        for backbone in BACKBONES
        if (ours := published("node_classification", dataset, backbone, "grelu"))
        and (relu := published("node_classification", dataset, backbone, "relu"))
    ]
    own = [
        row.over_relu.difference
        for row in main_rows()
        if row.over_relu is not None and row.dataset not in SOCIAL
    ]
    losses = {count.rival: count for count in loss_tallies(node_results())}
    told = " and ".join(
        f"better than {label(name)} in {losses[name].won} of "
        f"{losses[name].won + losses[name].tied + losses[name].lost} cells, worse in "
        f"{losses[name].lost}"
        for name in ("relu", "prelu")
    )
    deep_rows = deep.deep_rows(Record(ROOT / "results" / "deep.jsonl").read())
    in_deep = _ahead(
        (row.dataset, row.backbone, row.over_relu) for row in deep_rows if row.activation == "GReLU"
    )
    of_graphs = _ahead((*cell[1:], lead) for cell, lead in _graphs()["GReLU"].items())
    return paragraph(
        f"In deep networks the significant leads are those on {in_deep}. With whole graphs they "
        f"are those on {of_graphs}; the folds share their graphs, so these intervals are narrower "
        "than they should be. **The paper's gains with 20 labels per class were not reproduced**: "
        f"on Cora, CiteSeer and PubMed the paper prints a mean lead of {fmean(printed):+.1f} "
        f"points over ReLU, and we measure {fmean(own):+.1f}. By the test loss, with few labels, "
        f"GReLU is {told}."
    )


def _ahead(leads: Iterable[tuple[str, str, Decision | None]]) -> str:
    """The cells with a significant lead."""
    return ", ".join(
        f"{label(dataset)} with {label(backbone)} ({lead.difference:+.1f})"
        for dataset, backbone, lead in leads
        if lead is not None and lead.outcome == "better"
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
    """All seeds of a cell at once, against a loop."""
    seconds = benchmark("seeds_cpu.json")["seconds"]
    return paragraph(
        "It prints a table of six activations, with the same splits, seeds and settings for each, "
        "differences paired by seed, and one sentence of verdict. All seeds train at once: ten "
        f"seeds of a GCN on Cora take {seconds['one_by_one'] / seconds['at_once']:.1f} times less "
        "time on two cores than a PyG loop ([record](benchmarks/results/seeds_cpu.json))."
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
    node.write_leads(main_rows(), FIGURE)


if __name__ == "__main__":
    main()
