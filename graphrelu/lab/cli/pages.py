"""``graphrelu report``: the page of some records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from graphrelu.lab.cli.common import Root, one_sentence
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.record import output
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import show

RESULTS = Path("results")
BENCHMARKS = Path("benchmarks/results")


def report(
    records: Annotated[
        list[Path] | None,
        typer.Argument(help="Records (.jsonl; speed: .json), else those in results/."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html"),
    data: Root = None,
) -> None:
    """One page of HTML from records: table, differences, curves, graphs. It trains nothing."""
    from graphrelu.lab import page

    with one_sentence():
        paths = records or _committed()
        if not paths:
            raise ValueError(f"There are no records in {RESULTS}/; name one to show.")
        if out.resolve() in [path.resolve() for path in paths]:
            raise ValueError(f"{out} cannot be a record and the page at once.")
        output.check_file(out)
        page.write(out, page.from_records(paths, data))
        show.console().print(f"Written: {out}.", soft_wrap=True)


@contextmanager
def record_of_comparison(out: Path | None, page: Path | None) -> Iterator[Record | None]:
    """The record that a comparison writes to; for a page alone one that is not kept, as the looks
    inside of models are found beside a record."""
    if out is not None or page is None:
        yield None if out is None else Record(out)
        return
    with tempfile.TemporaryDirectory(prefix="graphrelu-") as folder:
        yield Record(Path(folder) / "runs.jsonl")


def report_comparison(
    path: Path,
    results: Sequence[Result],
    graph: Graph | GraphSet,
    record: Path,
    verdict: str,
    dataset: str,
    options: Mapping[str, Any],
) -> None:
    """The page of one comparison, with the command that repeats it."""
    from graphrelu.lab import page
    from graphrelu.lab.page.origin import spelled

    command = spelled(dataset, options)
    page.write(path, page.from_comparison(results, graph, record, verdict, command))


def _committed() -> list[Path]:
    """The records of runs and timings; the looks of ``inspect`` have a page of their own, and of
    the study nobody is to see test accuracies."""

    def belongs(path: Path) -> bool:
        with path.open("rb") as file:
            holds_looks = file.readline().startswith(b'{"event":"inspected"')
        return not holds_looks and path.stem != "study"

    runs = [path for path in sorted(RESULTS.glob("*.jsonl")) if belongs(path)]
    return runs + sorted(BENCHMARKS.glob("activation_*.json"))
