"""How figures look, and how they are saved; each experiment draws its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphrelu.lab.record.machine import complete

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Figure

    from graphrelu.lab.stats import Decision

# Told apart in black and white, too: each line has a marker and a dash of its own.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))

STYLE: Any = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "savefig.dpi": 150,
    "svg.hashsalt": "graphrelu",  # the same record gives the same bytes
}


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the project's style, and never on a screen."""
    import matplotlib

    matplotlib.use("agg")
    with matplotlib.rc_context(STYLE):
        yield


def panels(rows: int, columns: int, **options: Any) -> tuple[Figure, Any]:
    """A figure, and its axes as an array of rows and columns."""
    import matplotlib.pyplot as plt

    return plt.subplots(rows, columns, squeeze=False, **options)


def line_styles() -> Iterator[dict[str, Any]]:
    """Keyword arguments of one line after another."""
    for colour, marker, dash in cycle(zip(COLOURS, MARKERS, DASHES, strict=True)):
        yield {"color": colour, "marker": marker, "linestyle": dash, "markersize": 4}


def draw_leads(
    axes: Axes, leads: Iterable[tuple[float, Decision | None]], style: dict[str, Any]
) -> None:
    """Differences with their 95 % intervals, each at its place; ``None`` is left out."""
    known = [(place, lead) for place, lead in leads if lead is not None]
    reach = [0.0 if lead.high is None else lead.high - lead.difference for _, lead in known]
    axes.errorbar(
        [place for place, _ in known],
        [lead.difference for _, lead in known],
        yerr=reach,
        capsize=2,
        **style,
    )


def write(draw: Callable[[], Figure], record: Path) -> list[Path]:
    """Draw a figure, as .png and .svg beside a record, each complete or not at all."""
    import matplotlib.pyplot as plt

    paths = []
    with drawing():
        figure = draw()
        for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            paths.append(record.with_suffix(f".{ending}"))
            with complete(paths[-1]) as part:
                figure.savefig(part, format=ending, metadata=metadata)
    plt.close(figure)
    return paths
