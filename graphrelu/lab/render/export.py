"""Tables as Markdown and CSV, and where their numbers come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphrelu.lab.record import divergence
from graphrelu.lab.record.config import FEW_LABELS, Config
from graphrelu.lab.record.results import Result

if TYPE_CHECKING:
    import pandas as pd

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


def frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """All values of some rows; a lead becomes several columns, such as ``over_relu_p``."""
    import pandas as pd

    def plain(value: Any) -> Any:
        return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value

    known = ({n: plain(value) for n, value in row.items() if value is not None} for row in rows)
    return pd.json_normalize(list(known), sep="_")


def lead_columns(name: str) -> list[str]:
    """What a CSV file has of a column of leads."""
    return [f"{name}_{of}" for of in ("difference", "low", "high", "std", "p", "n", "outcome")]


def to_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Some columns of the rows, with six digits."""
    found = frame(rows).reindex(columns=columns)
    return str(found.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def table(head: Sequence[str], lines: Iterable[Sequence[str]], numbers: int) -> str:
    """A Markdown table; the columns from ``numbers`` on are aligned to the right."""
    rule = [("---:" if column >= numbers else "---") for column in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))
