"""The paper's observations, held against the records: one line for each claim.

The claims about the main table are here; the other experiments state their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from graphrelu.lab.record import output
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.published import published
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, NODE_DATASETS, node_table
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render.findings import (
    RULE,
    Finding,
    Observation,
    in_all,
    papers_lead,
    papers_mean,
    several,
    to_markdown,
)
from graphrelu.lab.render.tables import label, measured, signed
from graphrelu.lab.reproduce import ablation, graph, runtime, segments
from graphrelu.lab.reproduce.table import filled
from graphrelu.lab.stats import (
    Cell,
    Cells,
    Decision,
    Splits,
    compared,
    leads_over,
    scores_by_cell,
    splits_by_cell,
)

RECORDS = ("node", "ablation", "segments", "runtime", "graph")
RIVALS = tuple(name for name in ACTIVATIONS if name != "grelu")
TABLE = "node_classification"
SOCIAL = ("blogcatalog", "flickr")


def render(folder: Path) -> list[Path]:
    """Write ``observations.md`` beside the records."""
    page = output.check_file(folder / "observations.md")
    names = [f"{name}.jsonl" for name in RECORDS]
    if not any((folder / name).is_file() for name in names):
        raise ValueError(f"{folder} has none of the records {', '.join(names)}.")
    parts = [f"## {title}\n\n{to_markdown(own)}" for title, own in observations(folder).items()]
    (text,) = filled("observations", rule=RULE, observations="\n".join(parts))
    output.write_text(page, text)
    return [page]


def observations(folder: Path) -> dict[str, list[Observation]]:
    """The observations by experiment, from the records in the folder."""
    node, variants, lengths, timings, graphs = (folder / f"{name}.jsonl" for name in RECORDS)
    rows = segments.TABLE.rows(_runs(lengths, segments.TABLE.wanted().values()))
    tried = ablation.TABLE.rows(_runs(variants, ablation.TABLE.wanted().values()))
    timed = runtime.rows_of(runtime.record_of(timings).read())
    return {
        "Node classification": of_main_table(_runs(node, node_table())),
        "The ablation on Flickr, with GCN": ablation.observations(tried, "flickr"),
        "The effect of K, with GCN": segments.observations(rows),
        "Runtime": runtime.observations(timed),
        "Graph classification": graph.observations(Record(graphs).read()),
    }


def _runs(record: Path, configs: Iterable[Config]) -> list[Result]:
    wanted = set(configs)
    return [result for result in Record(record).read() if result.config in wanted]


def of_main_table(results: Sequence[Result]) -> list[Observation]:
    """GReLU everywhere, GReLU with ARMA, and GCN with GReLU against GAT."""
    cells, splits = scores_by_cell(results), splits_by_cell(results)
    return [
        _best_everywhere(cells, splits),
        *_with_arma(cells, splits),
        _against_gat(cells, splits),
    ]


def _best_everywhere(cells: Cells, splits: Mapping[Cell, Splits]) -> Observation:
    pairs = {
        (cell, rival): (scores.get("grelu", {}), scores.get(rival, {}))
        for cell, scores in cells.items()
        for rival in RIVALS
    }
    leads = compared(pairs, {pair: splits[pair[0]] for pair in pairs}).values()
    whole = [scores for scores in cells.values() if scores.keys() >= set(ACTIVATIONS)]
    ours = [{name: fmean(own.values()) for name, own in scores.items()} for scores in whole]
    papers = [
        {name: papers_mean(TABLE, dataset, backbone, name) for name in ACTIVATIONS}
        for dataset in NODE_DATASETS
        for backbone in BACKBONES
        if published(TABLE, dataset, backbone, "grelu") is not None
    ]
    return Observation(
        "GReLU is the best activation on every graph and backbone",
        _highest(papers),
        in_all(leads),
        "; ".join(part for part in (several(leads), _highest(ours)) if part),
    )


def _highest(means: Collection[Mapping[str, float]]) -> str:
    highest = sum(cell["grelu"] == max(cell.values()) for cell in means)
    return f"the highest mean in {highest} of {len(means)} cells" if means else ""


def _with_arma(cells: Cells, splits: Mapping[Cell, Splits]) -> list[Observation]:
    arma = {name: cells.get((name, "arma"), {}) for name in SOCIAL}
    shared = {name: splits.get((name, "arma"), Splits()) for name in SOCIAL}
    leads = leads_over(arma, "grelu", "relu", shared)
    found = []
    for name in SOCIAL:
        claim = f"GReLU is ahead of ReLU on {label(name)} with ARMA by as much as the paper's"
        figure, lead = papers_lead(TABLE, name, "arma"), leads.get(name)
        ours = "" if lead is None else measured(lead)
        found.append(Observation(claim, f"{signed(figure)} points", reaches(lead, figure), ours))
    return found


def reaches(lead: Decision | None, figure: float) -> Finding:
    """Whether a lead is as large as the paper's: its whole interval says so."""
    if lead is None:
        return "not measured yet"
    if lead.low is None or lead.high is None:
        return "undecided"
    return "holds" if lead.low >= figure else "does not hold" if lead.high < figure else "undecided"


def _against_gat(cells: Cells, splits: Mapping[Cell, Splits]) -> Observation:
    pairs, printed = {}, []
    for name in NODE_DATASETS:
        ours, theirs = (cells.get((name, backbone), {}) for backbone in ("gcn", "gat"))
        own = papers_mean(TABLE, name, "gcn", "grelu")
        for rival in RIVALS:
            pairs[name, rival] = (ours.get("grelu", {}), theirs.get(rival, {}))
            printed.append(own > papers_mean(TABLE, name, "gat", rival))
    shared = {pair: splits.get((pair[0], "gcn"), Splits()) for pair in pairs}
    leads = compared(pairs, shared).values()
    return Observation(
        "GCN with GReLU is ahead of GAT with any other activation",
        f"higher in {sum(printed)} of {len(printed)} comparisons",
        in_all(leads),
        several(leads),
    )
