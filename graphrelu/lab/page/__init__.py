"""The HTML page of ``graphrelu report``: one file that a browser shows without any other."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from torch_geometric.utils import homophily

from graphrelu.lab import data
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.page.charts import speeds
from graphrelu.lab.page.explorer import graphs_at_hand, looks
from graphrelu.lab.page.origin import compare_command as compare_command
from graphrelu.lab.page.tables import tables_of
from graphrelu.lab.prepare import identity, split_rule
from graphrelu.lab.record import machine, output
from graphrelu.lab.record.journal import parse_line
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render.tables import compare_rows, going_on, label, verdict
from graphrelu.lab.render.terminal import size_of
from graphrelu.lab.stats import Decided, decide_at_look

SCRIPTS = ("draw.js", "table.js", "charts.js", "explorer.js", "save.js", "page.js")
MOST_BYTES = 3_000_000
LISTS = ("missing", "tables", "looks", "speed", "sources")


def from_records(
    paths: Sequence[Path], root: str | Path | None = None, graphs: Sequence[str] = ()
) -> dict[str, Any]:
    """The content of a page, from records, and from graphs that are named or lie on the disk."""
    content = _empty("Activations compared")
    given = {identity(name, graph): graph for name in graphs for graph in [data.load(name, root)]}
    for path in paths:
        if not path.is_file():
            raise ValueError(f"There is no record {path}.")
        of_benchmark = path.suffix == ".json"
        record = Record(path)
        results = [] if of_benchmark else record.read()
        charts = speeds(path) if of_benchmark else {}
        if not results and not any(charts.values()):
            content["missing"].append(f"{path.name} has no finished runs to show.")
        # A record of runs does not know the lines of other records.
        lines = record.corrupt_lines if results or of_benchmark else unreadable(path)
        content["missing"] += gaps(path.name, results, lines)
        for name, found in charts.items():
            content[name] += found
        if results:
            decided, not_counted = judge_all(record, results)
            content["missing"] += not_counted
            if len(paths) == 1 and len(decided) == 1:
                ((key, one),) = decided.items()
                own = [result for result in results if result.config.cell_key() == key]
                _answer(content, own, one, path)
            inspected = path.with_name(f"{path.stem}_inspection").is_dir()
            at_hand = graphs_at_hand(results, root, given) if inspected else {}
            _add_runs(content, results, path.name, path, at_hand, decided)
            lacking = {result.config.dataset for result in results} - at_hand.keys()
            if inspected and lacking:
                content["missing"].append(
                    f"{path.name}: the explorer lacks {', '.join(map(label, sorted(lacking)))}; "
                    "name the graph with graphrelu report --graph."
                )
    unknown = [graph.name for name, graph in given.items() if name not in content["graphs"]]
    if unknown:
        raise ValueError(
            f"No model of these records was trained on {unknown[0]} as it is now, or none was kept."
        )
    return content


def unreadable(path: Path) -> list[int]:
    """The numbers of the lines that are not entries of a record; an error if none is."""
    every = enumerate(path.read_bytes().splitlines(), start=1)
    lines = [(number, line) for number, line in every if line.strip()]
    found = [number for number, line in lines if not _is_entry(line)]
    if lines and len(found) == len(lines):
        raise ValueError(f"{path} is not a record: none of its lines can be read.")
    return found


def _is_entry(line: bytes) -> bool:
    try:
        return "event" in parse_line(line)
    except ValueError:
        return False


def gaps(name: str, results: Sequence[Result], lines: Sequence[int]) -> list[str]:
    """Sentences on what is missing from a record: unreadable lines, and runs."""
    sentences = []
    if lines:
        numbers = ", ".join(map(str, lines[:10])) + (", ..." if len(lines) > 10 else "")
        what = "1 line cannot be read" if len(lines) == 1 else f"{len(lines)} lines cannot be read"
        sentences.append(f"{name}: {what} (number {numbers}).")
    cells: dict[tuple[str, str], set[int]] = {}
    for config, count in Counter(result.config for result in results).items():
        cells.setdefault((config.dataset, config.backbone), set()).add(count)
    uneven = sum(len(counts) > 1 for counts in cells.values())
    if uneven:
        sentences.append(
            f"{name}: in {uneven} of {len(cells)} cells some settings have fewer runs than others."
        )
    return sentences


def judge_all(record: Record, results: Sequence[Result]) -> tuple[dict[str, Decided], list[str]]:
    """The decisions on the comparisons of a record by the key of their cell, and a sentence where
    the looks at them cannot be counted."""
    cells: dict[str, list[Result]] = {}
    for result in results:
        cells.setdefault(result.config.cell_key(), []).append(result)
    decided = {
        key: decide_at_look(record, own, must_count=False)
        for key, own in cells.items()
        if record.looks(key)
    }
    if all(one.counted for one in decided.values()):
        return decided, []
    return decided, [
        f"{record.path.name} cannot be written to, so that this look at its runs is not counted; "
        "the verdict is that of a look that is."
    ]


def from_comparison(
    results: Sequence[Result],
    decided: Decided,
    graph: Graph | GraphSet,
    record: Path,
    command: str,
) -> dict[str, Any]:
    """The content of a page, from one comparison as it was decided, and the command that repeats
    it."""
    config = results[0].config
    content = _empty("") | {"command": command}
    _answer(content, results, decided, record)
    content["graph"] = graph_line(graph, results)
    graphs = {}
    if isinstance(graph, Graph) and graph.task == "classes":  # nodes are right or wrong
        graphs[config.dataset] = graph
    _add_runs(content, results, config.dataset, record, graphs, {config.cell_key(): decided})
    return content


def graph_line(graph: Graph | GraphSet, results: Sequence[Result]) -> str:
    """A graph in a line: its size, the share of edges between nodes of one class, the split."""
    alike = ""
    if isinstance(graph, Graph) and graph.task == "classes" and graph.num_edges:
        known = (graph.y[graph.edge_index] >= 0).all(dim=0)
        alike = f", homophily {homophily(graph.edge_index[:, known], graph.y):.2f}"
    return f"{size_of(graph)}{alike}. Split: {split_rule(results)}."


def render(content: dict[str, Any]) -> str:
    """The page. Its policy lets no request out, and no script in but the page's own."""
    templates = Environment(loader=PackageLoader("graphrelu.lab.page"))
    script = "\n".join(templates.get_template(name).render() for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Inside of a script element only "<" can end or change it.
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return templates.get_template("page.html").render(digest=digest, data=text, script=script)


def write(path: Path, content: dict[str, Any]) -> Path:
    """Write the page, complete or not at all."""
    text = render(content)
    if len(text.encode()) > MOST_BYTES:
        raise ValueError(
            f"The page would take {len(text.encode()) / 1e6:.1f} MB, more than "
            f"{MOST_BYTES / 1e6:g}; choose fewer records."
        )
    output.write_text(path, text)
    return path


def _empty(title: str) -> dict[str, Any]:
    lists: dict[str, Any] = {name: [] for name in LISTS}
    made = {"date": machine.now(), "version": machine.environment()["graphrelu"]}
    texts = dict.fromkeys(("answer", "verdict", "next", "command", "graph"), "")
    return {"title": title, "made": made, "graphs": {}, **texts, **lists}


def _answer(
    content: dict[str, Any], results: Sequence[Result], decided: Decided, record: Path
) -> None:
    """What the page begins with: the words of the terminal."""
    config = results[0].config
    title = f"{label(config.dataset)}, {label(config.backbone)}: activations compared"
    found = verdict(compare_rows(results, decided.decisions))
    further = going_on(found, decided.command, record)
    words = {"answer": found.answer, "verdict": found.sentence, "next": further}
    content |= {"title": title, **words}


def _add_runs(
    content: dict[str, Any],
    results: Sequence[Result],
    name: str,
    record: Path,
    graphs: dict[str, Graph],
    decided: Mapping[str, Decided],
) -> None:
    decisions = {key: one.decisions for key, one in decided.items()}
    content["tables"] += tables_of(results, name, decisions)
    layouts, found = looks(results, record, graphs)
    content["graphs"] |= layouts
    content["looks"] += found
