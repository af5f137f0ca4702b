"""Refreshes what README.md and docs/ say of the records: make readme.

A generated part stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``; the functions of BLOCKS
write it, with the words of readme.md beside this file.
"""

import json
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache, partial
from io import StringIO
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich.console import Console
from torch_geometric.nn import GCNConv

from graphrelu import GReLU
from graphrelu.lab.record.machine import write_text
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import compare_rows, compare_table, label, verdict
from graphrelu.lab.reproduce import (
    ablation,
    deep,
    files,
    graph,
    molecules,
    node,
    segments,
    sets,
    shown,
    strong,
)
from graphrelu.lab.reproduce.deep import EXPLORED, is_held_out
from graphrelu.lab.reproduce.sets import LAYERS
from graphrelu.lab.reproduce.shown import OUTCOMES, counts
from graphrelu.lab.reproduce.table import Pair, Row
from graphrelu.lab.stats import Decision, decide_at_look

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md")
SOCIAL = ("blogcatalog", "flickr")
TABLES = {
    module.TABLE.name: module.TABLE
    for module in (node, deep, strong, graph, molecules, sets, ablation, segments)
}
PART = r"<!-- (\w+) -->\n(.*?)<!-- /\1 -->"
WORDS = dict(re.findall(PART, Path(__file__).with_suffix(".md").read_text(), re.DOTALL))


@cache
def results(name: str) -> tuple[Result, ...]:
    return tuple(Record(ROOT / "results" / f"{name}.jsonl").read())


@cache
def rows(name: str) -> tuple[Row, ...]:
    """The rows of a table."""
    return tuple(TABLES[name].rows(results(name)))


def benchmark(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "benchmarks" / "results" / name).read_text())


def told(name: str, **numbers: Any) -> str:
    """The words of a part, with its numbers, in lines of 100 characters."""
    wrapper = textwrap.TextWrapper(100, break_long_words=False, break_on_hyphens=False)
    lines = []
    for line in WORDS[name].format(**numbers).splitlines():
        wrapper.subsequent_indent = "  " if line.startswith("- ") else ""
        lines.append(wrapper.fill(line))
    return "\n".join(lines) + "\n"


def tally_table() -> str:
    """How often GReLU is ahead of each rival in the main table, on its held-out graph."""
    held_out = [row for row in rows("node") if is_held_out(row.dataset) and row.name != "grelu"]
    lines = []
    for rival in dict.fromkeys(row.name for row in held_out):
        outcomes = counts(row["grelu_over_it"] for row in held_out if row.name == rival)
        lines.append((label(rival), *outcomes))
    return files.table(("rival", *OUTCOMES), lines, numbers=1)


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


# The tables that have leads over ReLU where labels are few, and where they are not.
REGIMES = {
    "node": "[few labels](../results/node.md)",
    "deep": "[all labels](../results/deep.md), 4 or 10 layers, norm, skips",
    "strong": "[settings tuned for ReLU](../results/strong.md)",
    "graph": "[whole graphs](../results/graph.md)",
}


@cache
def leads(name: str) -> dict[str, dict[Any, Decision]]:
    """All leads over ReLU of a table by activation and cell, those of each corrected over the
    cells."""
    made: dict[str, dict[Any, Decision]] = {}
    if name in ("deep", "strong"):
        for row in rows(name):
            if row["over_relu"] is not None:
                made.setdefault(row.name, {})[row.cell] = row["over_relu"]
        return made
    cells = shown.by_cell(rows(name))
    found = {cell: {of: row.runs for of, row in own.items()} for cell, own in cells.items()}
    for (cell, of), lead in TABLES[name].leads(found, Pair("", None, "relu")).items():
        made.setdefault(label(of), {})[cell] = lead
    return made


def regime(name: str, held_out: bool = True, without: Collection[str] = ()) -> dict[str, str]:
    """The leads in the cells of held-out graphs, or of tuning graphs, in short: how many cells,
    their graphs, the mean of each activation, GReLU's median and its outcomes."""
    known = {
        of: {
            cell: lead
            for cell, lead in leads(name).get(of, {}).items()
            if cell[0] not in without and is_held_out(cell[0]) == held_out
        }
        for of in ("PReLU", "GELU", "GReLU")
    }
    if not known["GReLU"]:
        return {}
    differences = {of: [lead.difference for lead in own.values()] for of, own in known.items()}
    outcomes = [lead.outcome for lead in known["GReLU"].values()]
    return {
        "graphs": ", ".join(dict.fromkeys(label(cell[0]) for cell in known["GReLU"])),
        "cells": str(len(outcomes)),
        **{of: f"{fmean(own):+.2f}" if own else "-" for of, own in differences.items()},
        "median": f"{median(differences['GReLU']):+.2f}",
        **{which: str(outcomes.count(which)) for which in OUTCOMES},
    }


def in_words(found: dict[str, str]) -> str:
    rival = ", PReLU {PReLU}" if found["PReLU"] != "-" else ""
    words = "GReLU {GReLU}, median {median}" + rival
    return (words + "; better in {better} of {cells} networks, worse in {worse}").format(**found)


def regimes(held_out: bool = True) -> str:
    """A table of the mean leads, and of GReLU's outcomes."""
    lines = []
    for name, what in REGIMES.items():
        if found := regime(name, held_out):
            graphs = found.pop("graphs")
            lines.append((f"{what}: {graphs}", *found.values()))
    head = ("networks and graphs", "pairs", "PReLU", "GELU", "GReLU", "median", *OUTCOMES)
    return files.table(head, lines, numbers=1)


def explored() -> str:
    """What is left of the leads where no graph was looked at before."""
    parts = []
    for name, what in (("deep", "networks as people train them"), ("strong", "strong networks")):
        if found := regime(name, without=EXPLORED):
            parts.append(f"in {what} {in_words(found)} ({found['graphs']})")
    graphs = ", ".join(sorted(map(label, EXPLORED)))
    return told("explored", graphs=graphs, parts="; ".join(parts))


def advice() -> str:
    """When to use GReLU."""
    few, *many = (regime(name) for name in ("node", "deep", "strong"))
    whole = {
        name: {
            row.cell: row["over_relu"]
            for row in rows("sets")
            if row.name == name and row["label"] in ("whole", "both") and row["layers"] == LAYERS
        }
        for name in ("GReLU-A", "virtual node")
    }
    leads = [(lead, whole["virtual node"][cell]) for cell, lead in whole["GReLU-A"].items()]
    return told(
        "advice",
        node=few,
        deep=many[0],
        strong=many[1],
        neither={key: sum(int(own[key]) for own in many) for key in ("cells", "better", "worse")},
        sets={
            "cells": len(leads),
            "better": sum(own.outcome == "better" for own, _ in leads),
            "ahead": sum(own.difference > node.difference for own, node in leads),
        },
        plain=plain_molecules(),
        peptides=peptides(),
        run=made_run()[1]["grelu"],
    )


def plain_molecules() -> dict[str, Any]:
    """GReLU's lead over ReLU in the plain networks on sets of molecules, and over a ReLU with twice
    the epochs where that is on record; all in percent of the other's error."""
    found: dict[Any, dict[str, Row]] = {}
    for row in rows("molecules"):
        if row["setting"] == "published" and row["published"] is None:
            found.setdefault(row.cell, {})[row.name] = row
    usual = [own["grelu"]["over_relu"] for own in found.values() if "grelu" in own]
    long = [
        100 * (1 - own["grelu"].mean / own["relu-2"].mean)
        for own in found.values()
        if own.keys() >= {"grelu", "relu-2"}
    ]
    first = next(iter(found.values()))
    return {
        "cells": len(usual),
        "ahead": sum(lead.difference > 0 for lead in usual),
        "better": sum(lead.outcome == "better" for lead in usual),
        "median": median(lead.difference for lead in usual),
        "epochs": first["relu"]["epochs"],
        "long": median(long),
    }


def peptides() -> dict[str, Any]:
    """GReLU's lead with the published settings of a GCN on Peptides-func, and the parameters of
    that network with GReLU and with a virtual node."""
    own = {
        (row.name, row["setting"]): row
        for row in rows("molecules")
        if row.cell == ("peptides_func", "gcn")
    }
    published = own["grelu", "published"]
    return {
        "lead": published["over_relu"].difference,
        "grelu": published["parameters"],
        "node": own["relu+vn", "grid"]["parameters"],
    }


def losses() -> str:
    """In how many networks GReLU's mean test loss is above PReLU's."""
    counted = {}
    for name in ("deep", "strong"):
        means = [
            [fmean(run.test_loss for run in own[of].runs.values()) for of in ("GReLU", "PReLU")]
            for cell, own in shown.by_cell(rows(name)).items()
            if is_held_out(cell.dataset) and own.keys() >= {"GReLU", "PReLU"}
        ]
        counted[name] = f"{sum(grelu > prelu for grelu, prelu in means)} of {len(means)}"
    return told("losses", **counted)


def of_the_paper() -> str:
    """The leads that were found on held-out graphs, the printed ones beside those of the record,
    and the losses."""
    printed = [
        own["grelu"]["paper_mean"] - own["relu"]["paper_mean"]
        for cell, own in shown.by_cell(rows("node")).items()
        if cell[0] == "pubmed" and own["grelu"]["paper_mean"] is not None
    ]
    ahead = {name: leads(name)["GReLU"] for name in ("node", "deep", "graph")}
    found = {
        name: ", ".join(
            f"{label(cell[0])} with {label(cell[1])} ({lead.difference:+.1f})"
            for cell, lead in own.items()
            if is_held_out(cell[0]) and lead.outcome == "better"
        )
        for name, own in ahead.items()
    }
    by_loss: dict[Any, Counter[str]] = {"relu": Counter(), "prelu": Counter()}
    for row in rows("node"):
        if row.name in by_loss and is_held_out(row.dataset):
            by_loss[row.name].update((row["grelu_below_it"].outcome, "cells"))
    return told(
        "gains",
        printed=fmean(printed),
        own=fmean(lead.difference for cell, lead in ahead["node"].items() if cell[0] == "pubmed"),
        **by_loss,
        **{name: cells or "none" for name, cells in found.items()},
    )


def cost() -> str:
    """Parameters, and a training step on a GPU for a large graph and a small one."""
    large = benchmark("cases_h200.json")["milliseconds"]["GCN, 1,000,000 nodes, 10,000,000 edges"]
    others = benchmark("cases_h200_batches.json")["milliseconds"]
    small = others["small graph: GCN, 3,300 nodes, 9,100 edges"]
    batch = others["fresh batch of 128 molecules: GCN, 4 x 64"]
    on_cpu = benchmark("cases_cpu.json")["milliseconds"][
        "fresh batch of 128 molecules: GCN, 4 x 64"
    ]
    sizes = (sum(p.numel() for p in made.parameters()) for made in (GReLU(256), GCNConv(256, 256)))
    return told(
        "cost",
        **dict(zip(("grelu", "conv"), sizes, strict=True)),
        added=100 * (large["GReLU"] / large["ReLU"] - 1),
        batch=batch["GReLU"] / batch["ReLU"],
        times=small["GReLU"] / small["ReLU"],
        on_cpu=on_cpu["GReLU"] / on_cpu["ReLU"],
    )


@cache
def made_run() -> tuple[list[Result], Mapping[str, Decision]]:
    """What `make run` trains, and the leads over ReLU."""
    record = Record(ROOT / "results" / "esol.jsonl")
    found = list(record.read())
    return found, decide_at_look(record, found).decisions


def run() -> str:
    """What `make run` prints: the scores and the verdict."""
    lines = compare_rows(*made_run())
    out = StringIO()
    screen = Console(file=out, width=100)
    scores, *_ = compare_table(lines).renderables
    screen.print(scores, "", verdict(lines).sentence, sep="\n")
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
    return f"```text\n{text}\n```\n"


def variants() -> str:
    """What became of the paper's observations about variants and segments."""
    found: dict[str, list[str]] = {outcome: [] for outcome in OUTCOMES}
    for row in rows("ablation"):
        if row["behind_a"] is not None and row.name != ablation.PRINTED:
            found[row["behind_a"].outcome].append(row.name.removeprefix("GReLU-"))
    by_k = [row["over_two"].outcome for row in rows("segments") if row["over_two"] is not None]
    return told(
        "variants",
        better=", ".join(found["better"]),
        worse=", ".join(found["worse"]) or "none",
        margin=segments.MARGIN,
        small=by_k.count("no difference"),
        all=len(by_k),
    )


BLOCKS = {
    "node": main_table,
    "tallies": tally_table,
    "regimes": regimes,
    "tuning": partial(regimes, held_out=False),
    "explored": explored,
    "advice": advice,
    "losses": losses,
    "gains": of_the_paper,
    "cost": cost,
    "run": run,
    "variants": variants,
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


if __name__ == "__main__":
    main()
