"""What is written beside a record: a page in Markdown, numbers as CSV, and a figure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

from graphrelu.lab.record.config import FEW_LABELS, Config
from graphrelu.lab.record.machine import check_file, write_text
from graphrelu.lab.record.results import Result
from graphrelu.lab.render import diverged, frame, label
from graphrelu.lab.reproduce import figures
from graphrelu.lab.stats import MARGIN, Decision

HASTE = (
    "\n\n**In haste: another graph, or fewer epochs, than the protocol's. No conclusion follows.**"
)


def filled(page: str, **blanks: Any) -> str:
    """The text of a page: its Markdown file in ``pages/``, with texts and numbers filled in."""
    template = files(__package__).joinpath("pages", f"{page}.md").read_text(encoding="utf-8")
    texts = {name: own.rstrip("\n") for name, own in blanks.items() if isinstance(own, str)}
    return template.format(**blanks | texts)


def provenance(
    results: Sequence[Result], record: Path, protocol: Iterable[Config] | None = None
) -> str:
    """Where the numbers of a page come from, and warnings; ``protocol`` has the full settings."""
    devices = ", ".join(sorted({result.device for result in results}))
    versions = ", ".join(sorted({f"torch {result.versions.get('torch')}" for result in results}))
    hasty = protocol is not None and not {result.config for result in results} <= set(protocol)
    origin = f"Made from `{record.name}`: {len(results):,} runs ({devices}; {versions})."
    told = [grelu_form(results), diverged(results)]
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


def rule(family: str, leads: Iterable[tuple[str, Decision | None]], margin: float = MARGIN) -> str:
    """How the differences of a page are decided, and what their intervals are about; ``leads`` are
    those of the page, each with its graph."""
    graphs: dict[str, dict[str, None]] = {}
    for dataset, lead in leads:
        if lead is not None and lead.low is not None:
            graphs.setdefault(lead.about, {})[label(dataset)] = None
    several = len(graphs) > 1
    told = [about + f" ({', '.join(own)})" * several for about, own in graphs.items()]
    return textwrap.fill(
        "Differences are paired by seed, and the interval decides, as in `graphrelu compare`: "
        "*better* or *worse* (marked \\*) where it lies above or below 0, *no difference that "
        f"matters* (marked =) where it lies within {margin:g} of 0, else *undecided*. The "
        f"intervals of {family} hold together with 95 % confidence (Holm's correction; p is "
        f"corrected, too), {'; '.join(told) or 'where there are five seeds'}.",
        100,
        break_on_hyphens=False,
    )


def table(head: Sequence[str], lines: Iterable[Sequence[str]], numbers: int) -> str:
    """A Markdown table; the columns from ``numbers`` on are aligned to the right."""
    rule = [("---:" if column >= numbers else "---") for column in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def csv(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], leads: Sequence[str] = ()
) -> str:
    """Some columns of the rows, with six digits; of a column of leads several."""
    parts = ("difference", "low", "high", "std", "p", "n", "outcome")
    titles = [[f"{name}_{part}" for part in parts] if name in leads else [name] for name in columns]
    found = frame(rows).reindex(columns=list(chain(*titles)))
    return str(found.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def write(
    record: Path, page: str, numbers: str, draw: Callable[[], figures.Figure] | None = None
) -> list[Path]:
    """Write a page, numbers as CSV and a figure beside a record, under its name; return the paths,
    that of the page first."""
    if record.suffix != ".jsonl":  # or a file beside it could be the record itself
        raise ValueError(f"The name of a record must end in .jsonl, unlike {record}.")
    texts = {".md": page, ".csv": numbers}
    paths = [check_file(record.with_suffix(ending)) for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_text(path, text)
    return paths if draw is None else [*paths, *figures.write(draw, record)]
