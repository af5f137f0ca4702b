"""Tables as Markdown and CSV, and where their numbers come from."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from graphrelu.lab.record import divergence
from graphrelu.lab.record.config import FEW_LABELS, Config
from graphrelu.lab.record.results import Result
from graphrelu.lab.render.tables import Price
from graphrelu.lab.stats import Decision

# What a field of a row that is not one value becomes, by its class.
PARTS: dict[type, tuple[str, ...]] = {
    Decision: ("difference", "low", "high", "std", "p", "n", "outcome"),
    Price: tuple(field.name for field in fields(Price)),
}
HASTE = (
    "\n\n**In haste: another graph, or fewer epochs, than the protocol's. No conclusion follows.**"
)


def provenance(
    results: Sequence[Result], record: Path, protocol: Iterable[Config] | None = None
) -> str:
    """Where the numbers of a page come from, and warnings; ``protocol`` has the full settings."""
    devices = ", ".join(sorted({result.device for result in results}))
    versions = ", ".join(sorted({f"torch {result.versions.get('torch')}" for result in results}))
    hasty = protocol is not None and not {result.config for result in results} <= set(protocol)
    origin = f"Made from `{record.name}`: {len(results):,} runs ({devices}; {versions})."
    told = [grelu_form(results), divergence.sentence(results)]
    warnings = "".join(f"\n\n{sentence}" for sentence in told if sentence)
    return f"{origin}{HASTE * hasty}{warnings}\n"


def grelu_form(results: Iterable[Result]) -> str:
    """Which form of GReLU the runs have, where it is not the default."""
    options = [dict(r.config.activation_options) for r in results if r.config.activation == "grelu"]
    calibrated = [own for own in options if own.get("mode") != "paper"]
    if not options:
        return "GReLU has not been run yet."
    if calibrated and all(FEW_LABELS.items() <= own.items() for own in calibrated):
        told = ", ".join(f"{name}={value}" for name, value in FEW_LABELS.items())
        return f"GReLU has `{told}`, as labels are few."
    return ""


def to_csv(rows: Iterable[Any], kind: type | Sequence[str]) -> str:
    """The rows of a table, with six digits: dataclasses, or dictionaries with these keys.

    A field that holds one of :data:`PARTS`, such as a :class:`Decision`, becomes as many columns.
    Not by pandas, which writes whole numbers as floats where some are missing.
    """
    if isinstance(kind, type):
        columns = [
            (name, part)
            for name, hint in get_type_hints(kind).items()
            for part in next((PARTS[k] for k in PARTS if k in (hint, *get_args(hint))), ("",))
        ]
        head = [f"{name}_{part}" if part else name for name, part in columns]
        whole = ([(getattr(row, name), part) for name, part in columns] for row in rows)
        lines = ([getattr(v, part, None) if part else v for v, part in line] for line in whole)
    else:
        head, lines = list(kind), ([row[name] for name in kind] for row in rows)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([f"{n:.6g}" if isinstance(n, float) else n for n in line] for line in lines)
    return stream.getvalue()


def table(head: Sequence[str], lines: Iterable[Sequence[str]], numbers: int) -> str:
    """A Markdown table; the columns from ``numbers`` on are aligned to the right."""
    rule = [("---:" if column >= numbers else "---") for column in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))
