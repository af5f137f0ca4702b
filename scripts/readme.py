"""Refreshes what README.md and docs/ say of the records, and the README's figure: make readme.

A generated part stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``; the functions of BLOCKS
write it.
"""

import json
import re
import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from graphrelu.lab.record.output import write_text
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export
from graphrelu.lab.render.findings import several
from graphrelu.lab.render.tables import NodeRow, label, loss_tallies, node_rows, tallies
from graphrelu.lab.reproduce import deep, node, runtime, structure
from graphrelu.lab.stats.comparison import fewest_seeds

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


def social_graphs() -> str:
    """The cells of the social graphs, before correction."""
    rows = [row for row in main_rows() if row.over_relu is not None]
    social = [row for row in rows if row.dataset in SOCIAL]
    leads_there = [(f"{label(r.dataset)}-{label(r.backbone)}", r.over_relu) for r in social]
    above = [name for name, lead in leads_there if lead and lead.low is not None and lead.low > 0]
    below = [name for name, lead in leads_there if lead and lead.high is not None and lead.high < 0]
    few = max(row.n for row in social) < fewest_seeds(len(rows))
    caution = (
        f"No cell of the social graphs can be decided by {seeds_of(social)} seeds once the test is "
        f"corrected for {len(rows)} cells. "
    )
    return paragraph(
        f"{caution * few}Before correction, the 95 % interval of GReLU's lead over ReLU on the "
        f"social graphs lies above zero in {', '.join(above) or 'no cell'}, and below zero in "
        f"{', '.join(below) or 'no cell'}."
    )


def elsewhere() -> str:
    """What other records say of GReLU against ReLU."""
    (losses,) = [count for count in loss_tallies(node_results()) if count.rival == "relu"]
    generated = [
        row.behind_a
        for row in structure.structure_rows(Record(ROOT / "results" / "structure.jsonl").read())
        if row.kind == "mirrored" and row.activation == "ReLU" and row.behind_a is not None
    ]
    return paragraph(
        "Against ReLU elsewhere: by the cross-entropy of the test nodes GReLU is significantly "
        f"better in {losses.won} of {losses.won + losses.tied + losses.lost} cells and worse in "
        f"{losses.lost}. On [generated graphs](docs/structure.md) whose nodes must be told apart "
        f"by what surrounds them it is {several(generated)}."
    )


def in_deep_networks() -> str:
    """Mean leads over ReLU in the networks of `graphrelu reproduce deep`."""
    rows = deep.deep_rows(Record(ROOT / "results" / "deep.jsonl").read())
    found = {
        name: [row.over_relu for row in rows if row.activation == name and row.over_relu]
        for name in deep.ACTIVATIONS
    }
    means = ", ".join(
        f"{name} {fmean(lead.difference for lead in own):+.2f}"
        for name, own in found.items()
        if own
    )
    outcomes = [lead.outcome for lead in found["GReLU"]]
    return paragraph(
        "In [networks as people train them](results/deep.md), of four and ten layers with norm, "
        f"skips and all labels, the mean leads over ReLU in points are: {means}. GReLU is "
        f"significantly better than ReLU in {outcomes.count('better')} of {len(outcomes)} cells, "
        f"worse in {outcomes.count('worse')}. Its constants were chosen by validation scores, "
        "[in a study](results/study.md)."
    )


def speed() -> str:
    """One activation on a CPU, and inside a training step on a GPU."""
    rows = benchmark("activation_cpu.json")["rows"]
    ours, printed = rows["GReLU"], rows["GReLU, straightforward"]
    time = "forward_backward_ms"
    cases = benchmark("cases_h200.json")["milliseconds"]
    step = cases["GCN, 1,000,000 nodes, 10,000,000 edges"]
    small = cases["small graph: GCN, 3,300 nodes, 9,100 edges"]
    added = {name: 100 * (step[name] / step["ReLU"] - 1) for name in ("GReLU", "Maxout")}
    return paragraph(
        "**Linear cost**, O(|E| + C|V|), as the paper promises: features are never diffused, no "
        "`N x K x C` tensor exists. On two cores, 100,000 nodes, a million edges and 64 channels, "
        f"forward and backward took, in version 0.1.0, "
        f"{ours[time] / rows['Maxout'][time]:.2f} times as long as Maxout's; the equations "
        f"evaluated as printed took {printed[time] / ours[time]:.0f} times "
        f"as long, and {printed['peak_mib'] / ours['peak_mib']:.1f} times the memory. In a GCN's "
        "training step on an H200, with a million nodes and ten million edges, GReLU added "
        f"{added['GReLU']:.1f} % to the time with ReLU, Maxout {added['Maxout']:.1f} %; with 3,300 "
        "nodes, where the host's time counts and not the GPU's, a step took "
        f"{small['GReLU'] / small['ReLU']:.1f} times as long "
        f"([records](benchmarks/results/README.md)). {small_graph()}"
    )


def small_graph() -> str:
    """Whole trainings, one at a time, on each device."""
    entries = runtime.record_of(ROOT / "results" / "runtime.jsonl").read()
    timed = [row for row in runtime.rows_of(entries) if row["mode"] == "one"]
    rows = [row for row in timed if row["activation"] == "grelu"]
    ratios = []
    for device in sorted({row["device"] for row in rows}):
        found = [row["relative"] for row in rows if row["device"] == device and row["relative"]]
        ratios.append(f"{min(found):.2f} to {max(found):.2f} times ({device})")
    (dataset,) = {label(row["dataset"]) for row in rows}
    return (
        f"On a graph as small as {dataset} fixed costs count: {runtime.EPOCHS} epochs with GReLU "
        f"took, in version 0.1.0, {' and '.join(ratios)} as long as with ReLU, by backbone "
        "([record](results/runtime.md))."
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
    "social": social_graphs,
    "elsewhere": elsewhere,
    "deep": in_deep_networks,
    "speed": speed,
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
