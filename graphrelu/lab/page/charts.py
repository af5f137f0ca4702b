"""The chart of the page beside its tables: the speed of activations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphrelu.lab.page.origin import surroundings_of
from graphrelu.lab.record import kinds
from graphrelu.lab.record.journal import parse_line

TIME = "forward_backward_ms"


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
