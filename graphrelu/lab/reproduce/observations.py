"""Every observation of the paper's, held against the records: one line for each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from graphrelu.lab.record import kinds, output
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.journal import Journal, parse_line
from graphrelu.lab.record.recipes import node_table
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce import (
    ablation,
    graph_findings,
    node_findings,
    runtime,
    runtime_findings,
    segments,
)
from graphrelu.lab.reproduce.findings import RULE, Observation, to_markdown
from graphrelu.lab.reproduce.runtime_findings import Timing

RECORDS = ("node", "ablation", "segments", "runtime", "graph")

NOTES = """\
A claim about several cells holds where it holds in all of them, and does not hold where it does not
hold in one. A claim of a size holds where the lead is significant and its interval reaches the
paper's figure, and does not hold where the interval ends below it. Of timings, one is faster than
another where its slowest repetition is faster than the other's fastest. That K does not matter
holds where all differences to K = 2 are known to be small.
"""


def render(folder: Path) -> list[Path]:
    """Write ``observations.md`` beside the records."""
    page = output.check_file(folder / "observations.md")
    names = [f"{name}.jsonl" for name in RECORDS]
    if not any((folder / name).is_file() for name in names):
        raise ValueError(f"{folder} has none of the records {', '.join(names)}.")
    parts = ["# The paper's observations, held against our records\n", RULE, NOTES]
    for title, found in observations(folder).items():
        parts += [f"## {title}\n", to_markdown(found)]
    output.write_text(page, "\n".join(parts))
    return [page]


def observations(folder: Path) -> dict[str, list[Observation]]:
    """The observations by experiment, from those records that are in the folder."""
    node, variants, lengths, timings, graphs = (folder / f"{name}.jsonl" for name in RECORDS)
    cells = [cell for name in segments.DATASETS for cell in segments.cells(name)]
    rows = segments.segments_rows(_runs(lengths, cells))
    tried = _runs(variants, ablation.variants("flickr").values())
    folds = [result for result in Record(graphs).read() if str(result.config.split) == "folds"]
    return {
        "Node classification": node_findings.observations(_runs(node, node_table())),
        "The ablation on Flickr, with GCN": ablation.observations(tried, "flickr"),
        "The effect of K, with GCN": segments.observations(rows, segments.DATASETS),
        "Runtime": runtime_findings.observations(_timings(timings)),
        "Graph classification": graph_findings.observations(folds),
    }


def _runs(record: Path, configs: Iterable[Config]) -> list[Result]:
    wanted = set(configs)
    return [result for result in Record(record).read() if result.config in wanted]


def _timings(record: Path) -> list[Timing]:
    """All of them, also several of the same identity."""
    found = []
    for line in Journal(record).news():
        try:
            entry = parse_line(line)
            kinds.check(entry, runtime.FIELDS | {"event": kinds.one_of(["timed"])})
        except ValueError:
            continue
        found.append(entry)
    return found
