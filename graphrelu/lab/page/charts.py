"""Charts of the page beside its tables: the effect of K, runtimes, time against size, speed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphrelu.lab.page.origin import surroundings_of
from graphrelu.lab.page.tables import runs_by_cell
from graphrelu.lab.record import kinds
from graphrelu.lab.record.entries import Entry
from graphrelu.lab.record.journal import parse_line
from graphrelu.lab.record.results import Result
from graphrelu.lab.render.tables import label
from graphrelu.lab.reproduce.complexity import AXES, WHAT, sweeps_of
from graphrelu.lab.reproduce.complexity import record_of as complexity_record
from graphrelu.lab.reproduce.runtime import by_panel, rows_of
from graphrelu.lab.reproduce.runtime import record_of as runtime_record
from graphrelu.lab.reproduce.segments import TABLE, segments_rows

TIME = "forward_backward_ms"


def segments_chart(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Means by K with their intervals, a line for each graph; none where K does not vary."""
    cells = runs_by_cell([run for run in results if TABLE.place(run.config) is not None])
    lines = []
    for (dataset, _, _), by_name in cells.items():
        if len(by_name) > 1:
            rows = segments_rows([run for runs in by_name.values() for run in runs])
            points = [[row.K, row.mean, row.low, row.high] for row in rows]
            lines.append({"name": label(dataset), "points": points})
    return lines


def timings(path: Path) -> dict[str, list[Any]]:
    """Charts of a record of timings: bars of ``runtime``, lines of ``complexity``."""
    runtime, sizes = runtime_record(path).read(), complexity_record(path).read()
    sources = [
        {"name": path.name, "command": f"graphrelu reproduce {name}", **surroundings_of(entries)}
        for name, entries in (("runtime", runtime), ("complexity", sizes))
        if entries
    ]
    return {"runtime": _bars(runtime), "sizes": _lines(sizes), "sources": sources}


def speeds(path: Path) -> dict[str, list[Any]]:
    """Times of ``benchmarks/activation.py``, beside their floor and relative to Maxout's.

    The floor is the time that the necessary passes over the features take at the speed at which
    memory is copied.
    """
    try:
        content = parse_line(path.read_bytes())
        rows, setting = content["rows"], content["setting"]
        times = {name: row[TIME] for name, row in rows.items() if TIME in row}
        kinds.check(times, dict.fromkeys(times, kinds.positive))
        size = ", ".join(f"{setting[name]:,} {name}" for name in ("nodes", "edges", "channels"))
        degrees = ", a power law" if setting.get("max_degree") else ""
        bars = [
            {
                "name": name,
                "ms": time,
                "floor": rows[name].get("floor_ms"),
                "relative": time / times["Maxout"] if "Maxout" in times else None,
            }
            for name, time in times.items()
        ]
        panel = {"name": f"{content['device']}: {size}{degrees}", "bars": bars}
        command = {"command": "python benchmarks/activation.py"}
        source = {"name": path.name, **command, **surroundings_of([content])}
        return {"speed": [panel], "sources": [source]}
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a record of benchmarks/activation.py.") from error


def _bars(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    numbers = ("seconds", "fastest", "slowest", "relative")
    return [
        {
            "name": title,
            "bars": [
                {name: row[name] for name in numbers}
                | {name: label(row[name]) for name in ("backbone", "activation")}
                | {"family": row["activation"]}
                for row in part
            ],
        }
        for title, part in by_panel(rows_of(entries)).items()
    ]


def _lines(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{WHAT[sweep[0]['what']]}, {sweep[0]['device']}",
            "axis": AXES[sweep[0]["axis"]],
            "points": [[entry["value"], 1_000 * entry["seconds"]] for entry in sweep],
        }
        for sweep in sweeps_of(entries)
    ]
