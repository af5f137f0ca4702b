"""Writes results/README.md from the records beside it: python benchmarks/page.py."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from graphrelu.lab.reproduce import files

RESULTS = Path(__file__).parent / "results"
table = partial(files.table, numbers=1)
INTRODUCTION = """\
# Measured speed

Made from the records in this folder by `benchmarks/page.py`; how, and what was done about it:
[docs/cost.md](../../docs/cost.md). Times are medians in milliseconds, the rivals of a table are
measured in one run.
"""


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def where(record: dict[str, Any]) -> str:
    return f"{record['device']}, torch {record['versions']['torch']}, {record['date'][:10]}"


def activation(record: dict[str, Any]) -> str:
    columns = {
        "forward_ms": "forward",
        "forward_backward_ms": "forward + backward",
        "peak_mib": "peak memory, MiB",
        "floor_ms": "floor",
    }
    maxout = record["rows"]["Maxout"]["forward_backward_ms"]
    lines = []
    for name, row in record["rows"].items():
        ratio = row["forward_backward_ms"] / maxout if "forward_backward_ms" in row else None
        lines.append([name, *(number(row.get(column)) for column in columns), number(ratio)])
    head = ["", *columns.values(), "x Maxout"]
    setting = record["setting"]
    sizes = (
        f"{setting['nodes']:,} nodes, {setting['edges']:,} directed edges, "
        f"{setting['channels']} channels, {setting['steps']} {setting['diffusion']} steps"
    )
    return f"## One activation: {sizes}\n\n{where(record)}.\n\n{table(head, lines)}"


def cases(record: dict[str, Any]) -> str:
    tables = [f"## A training step, case by case\n\n{where(record)}.\n"]
    for name, times in record["milliseconds"].items():
        relu = times["ReLU"]
        peaks = record.get("mebibytes", {}).get(name, {})
        head = ("", "ms", "x ReLU", *(["peak memory, MiB"] if peaks else []))
        lines = [
            (rival, number(time), number(time / relu), *([number(peaks[rival])] if peaks else []))
            for rival, time in times.items()
        ]
        tables.append(f"### {name[0].upper()}{name[1:]}\n\n{table(head, lines)}")
    return "\n".join(tables)


def page() -> str:
    parts = [INTRODUCTION]
    for render in (activation, cases):
        for path in sorted(RESULTS.glob(f"{render.__name__}*.json")):
            parts.append(render(json.loads(path.read_text())))
    return "\n".join(parts)


if __name__ == "__main__":
    (RESULTS / "README.md").write_text(page())
    print(f"written: {RESULTS / 'README.md'}")
