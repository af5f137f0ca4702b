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
from graphrelu.lab.data.graph_set import Features, GraphSet
from graphrelu.lab.page.explorer import Look, kept_looks, kept_models, shows_a_set
from graphrelu.lab.page.tables import tables_of
from graphrelu.lab.record import machine, output
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render.tables import compare_rows, going_on, label, split_rule, verdict
from graphrelu.lab.render.terminal import METRICS, size_of, task_of
from graphrelu.lab.stats import Decided, decide_at_look

SCRIPTS = ("draw.js", "table.js", "charts.js", "explorer.js", "save.js", "page.js")
MOST_BYTES = 3_000_000
MOST_MODELS = 16  # in the explorer, of a record; each takes up to 130 kB


def from_records(paths: Sequence[Path], root: str | Path | None = None) -> dict[str, Any]:
    """The content of a page, from records; the graphs of kept models are read from the disk, where
    they are known by name."""
    content = _empty("Activations compared")
    for path in paths:
        if not path.is_file():
            raise ValueError(f"There is no record {path}.")
        record = Record(path)
        results = record.read()
        if not results:
            content["missing"].append(f"{path.name} has no finished runs to show.")
            continue
        content["missing"] += gaps(path.name, results, record.corrupt_lines)
        decided = decide_all(record, results)
        if not all(one.counted for one in decided.values()):
            content["missing"].append(
                f"{path.name} cannot be written to, so this look at its runs does not count; "
                "the verdict is the one that a counted look would give."
            )
        if len(paths) == 1 and len(decided) == 1:
            ((key, one),) = decided.items()
            own = [result for result in results if result.config.cell_key() == key]
            _answer(content, own, one, path)
        looks = kept_looks(results, path)
        if len(looks) > MOST_MODELS:
            content["missing"].append(
                f"{path.name}: the explorer shows {MOST_MODELS} of {len(looks)} models."
            )
            looks = looks[:MOST_MODELS]
        names = {config.dataset for config, look in looks if not shows_a_set(look)}
        graphs = {name: data.load(name, root) for name in names if data.at_hand(name, root)}
        if lacking := ", ".join(sorted(map(label, names - graphs.keys()))):
            content["missing"].append(
                f"{path.name}: the explorer lacks {lacking}; the page of graphrelu compare has it."
            )
        _add_runs(content, results, path.name, decided)
        _add_models(content, looks, graphs)
    if not content["tables"]:
        raise ValueError(content["missing"][0])
    return content


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
    if uneven := sum(len(counts) > 1 for counts in cells.values()):
        sentences.append(
            f"{name}: in {uneven} of {len(cells)} comparisons, some settings have fewer runs "
            "than others."
        )
    return sentences


def decide_all(record: Record, results: Sequence[Result]) -> dict[str, Decided]:
    """The decisions on the comparisons of a record, by the key of their cell."""
    cells: dict[str, list[Result]] = {}
    for result in results:
        cells.setdefault(result.config.cell_key(), []).append(result)
    looked = {key: own for key, own in cells.items() if record.looks(key)}
    return {key: decide_at_look(record, own, must_count=False) for key, own in looked.items()}


def from_comparison(
    results: Sequence[Result],
    decided: Decided,
    graph: Graph | GraphSet,
    record: Path,
    command: str,
) -> dict[str, Any]:
    """The content of a page, from one comparison with its decisions, and the command that repeats
    it."""
    config = results[0].config
    content = _empty("") | {"command": command}
    _answer(content, results, decided, record)
    graphs = {}
    if isinstance(graph, GraphSet):
        content["facts"] = facts(graph, results)
    else:
        alike = ""
        if graph.task == "classes":  # nodes are right or wrong
            graphs[config.dataset] = graph
            if graph.num_edges:
                known = (graph.y[graph.edge_index] >= 0).all(dim=0)
                alike = f", homophily {homophily(graph.edge_index[:, known], graph.y):.2f}"
        content["graph"] = f"{size_of(graph)}{alike}. Split: {split_rule(results)}."
    _add_runs(content, results, config.dataset, {config.cell_key(): decided})
    _add_models(content, kept_looks(results, record), graphs)
    return content


def facts(graphs: GraphSet, results: Sequence[Result]) -> list[tuple[str, str]]:
    """What a set of graphs is, line by line."""
    count = graphs.node_count
    return [
        ("graphs", f"{graphs.num_graphs:,}"),
        ("nodes per graph", f"median {count.median():,}, from {count.min():,} to {count.max():,}"),
        ("features", f"{_kinds(graphs.nodes)} of a node, {_kinds(graphs.edges)} of an edge"),
        ("to predict", task_of(graphs)),
        ("split", split_rule(results)),
        ("metric", METRICS[results[0].config.metric]),
    ]


def _kinds(features: Features) -> str:
    count, one, many = features.table.size(1), "real number", "real numbers"
    if features.sizes:
        one, many = "category", "categories"
    return f"{count:,} {one if count == 1 else many}"


def render(content: dict[str, Any]) -> str:
    """The page. Its policy lets no request out, and no script in but the page's own."""
    templates = Environment(loader=PackageLoader("graphrelu.lab.page"))
    script = "\n".join(templates.get_template(name).render() for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Inside a script element only "<" can end or change it.
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
    made = {"date": machine.now(), "version": machine.environment()["graphrelu"]}
    texts = dict.fromkeys(("answer", "verdict", "next", "command", "graph"), "")
    lists: dict[str, Any] = {name: [] for name in ("missing", "facts", "tables", "models")}
    return {"title": title, "made": made, "graphs": {}, **texts, **lists}


def _answer(
    content: dict[str, Any], results: Sequence[Result], decided: Decided, record: Path
) -> None:
    """What the page begins with: the words of the terminal."""
    config = results[0].config
    found = verdict(compare_rows(results, decided.decisions))
    content["title"] = f"{label(config.dataset)}, {label(config.backbone)}: activations compared"
    content |= {"answer": found.answer, "verdict": found.sentence}
    content["next"] = going_on(found, decided.command, record)


def _add_runs(
    content: dict[str, Any],
    results: Sequence[Result],
    name: str,
    decided: Mapping[str, Decided],
) -> None:
    decisions = {key: one.decisions for key, one in decided.items()}
    content["tables"] += tables_of(results, name, decisions)


def _add_models(
    content: dict[str, Any], looks: Sequence[tuple[Config, Look]], graphs: Mapping[str, Graph]
) -> None:
    drawn, models = kept_models(looks, graphs)
    content["graphs"] |= drawn
    content["models"] += models
