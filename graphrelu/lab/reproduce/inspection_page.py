"""The looks inside trained models as a page, a table and a figure; and the schematic of K."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphrelu.lab.record.entries import Entry, origin
from graphrelu.lab.render import export, figures, pieces
from graphrelu.lab.render.tables import label
from graphrelu.lab.reproduce.inspection import PERCENTILES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTES = f"""\
Each model is trained by the recipe, or loaded; its GReLU is called once in evaluation. Random
pairs of a node and a channel are drawn without repetition, and each one's function
`max_k (slope_k x + intercept_k)` is classified over the inputs that its channel sees, from
percentile {100 * PERCENTILES[0]:g} to {100 * PERCENTILES[1]:g} over all nodes. A slope of at most \
{pieces.FLAT_SLOPE:g} in size counts as flat.

The paper's words: *increasing* functions act as LeakyReLU or PReLU; a *flat* one filters the
channel of this node out; a *decreasing* one flips signs. It gives no shares. What changes within
the range is *mixed* here, with its three kinds; *flat, then increasing* is what ReLU itself is,
and what a fresh GReLU is.
"""
GAMMA = """\
Gamma scales, node by node, how far GReLU's parameters move away from ReLU's; 1 is its ceiling.
Degree is the weighted number of incoming edges, PageRank has the model's own teleport probability.
rho is Spearman's rank correlation over all nodes.
"""


@dataclass(frozen=True)
class Row:
    """How many of the functions of one model have a shape."""

    dataset: str
    backbone: str
    seed: int
    shape: str
    paper_word: str
    functions: int
    share: float


def functions(entry: Entry) -> tuple[pieces.Array, ...]:
    """Slopes and intercepts ``[P, K]``, and both ends of the ranges ``[P]``."""
    slopes, intercepts, low, high = (
        np.asarray(entry[name]) for name in ("slopes", "intercepts", "low", "high")
    )
    fits = slopes.shape == intercepts.shape and low.shape == high.shape == slopes.shape[:1]
    if not fits or len(low) != entry["pairs"] or (low > high).any():
        raise ValueError(f"The functions of {_name(entry)} on record do not fit each other.")
    return slopes, intercepts, low, high


def rows_of(entry: Entry) -> list[Row]:
    """A row for each shape, whether or not there is such a function."""
    counts = Counter(pieces.shapes(*functions(entry)))
    cell = entry["dataset"], entry["config"]["backbone"], entry["seed"]
    return [
        Row(*cell, shape, pieces.coarse(shape), counts[shape], counts[shape] / entry["pairs"])
        for shape in pieces.NAMES
    ]


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's; none where one side is constant."""
    from scipy import stats

    if len(set(a)) == 1 or len(set(b)) == 1:
        return None
    return float(stats.spearmanr(a, b).statistic)


def document(entries: Sequence[Entry], source: str) -> str:
    """Everything about some models of one configuration on one page."""
    first = entries[0]
    backbone, pairs = label(first["config"]["backbone"]), first["pairs"]
    seeds = [_name(entry) for entry in entries]
    tables = [rows_of(entry) for entry in entries]
    lines: list[tuple[str, ...]] = []
    for word in pieces.CLASSES:
        parts = [[row for row in table if row.paper_word == word] for table in tables]
        lines.append((f"**{word}**", *(_percent(sum(r.share for r in part)) for part in parts)))
        if word == "mixed":
            for kind in zip(*parts, strict=True):
                lines.append((kind[0].shape, *(_percent(row.share) for row in kind)))
    return "\n".join(
        [
            f"# Inside GReLU: {label(first['dataset'])}, {backbone}\n",
            origin(entries, source, "model") + "\n",
            NOTES,
            f"## Shares of {pairs:,} functions, in percent\n",
            export.table(("shape", *seeds), lines, numbers=1),
            "## Gamma over the nodes\n",
            GAMMA,
            export.table(_GAMMA_HEAD, [_gamma_line(entry) for entry in entries], numbers=1),
        ]
    )


_GAMMA_HEAD = (
    *("model", "lowest", "5 %", "median", "95 %", "highest"),
    *("rho with degree", "rho with PageRank"),
)


def _gamma_line(entry: Entry) -> tuple[str, ...]:
    quantiles = np.quantile(entry["gamma"], (0, 0.05, 0.5, 0.95, 1))
    ranks = [rank_correlation(entry["gamma"], entry[name]) for name in ("degree", "pagerank")]
    return (
        _name(entry),
        *(f"{value:.3f}" for value in quantiles),
        *("constant" if rank is None else f"{rank:+.2f}" for rank in ranks),
    )


def _name(entry: Entry) -> str:
    return f"seed {entry['seed']}" + ("" if entry["model"] is None else f", file {entry['model']}")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def draw(entry: Entry) -> Figure:
    """The functions by class, their shares, and gamma: its distribution, degree, PageRank."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(12, 6))
    _draw_functions(axes[0], entry)
    rows = rows_of(entry)
    shares, histogram, by_degree, by_pagerank = axes[1]
    shares.barh([row.shape for row in rows], [100 * row.share for row in rows], color="#555555")
    shares.invert_yaxis()
    shares.set(xlabel="share of functions, %", title="shapes")
    histogram.hist(entry["gamma"], bins=40, color="#999999", edgecolor="black", linewidth=0.4)
    histogram.set(xlabel="gamma of a node", ylabel="nodes", title="gamma")
    for axis, name, what in (
        (by_degree, "degree", "degree (edges)"),
        (by_pagerank, "pagerank", "PageRank (share of visits)"),
    ):
        rank = rank_correlation(entry[name], entry["gamma"])
        axis.scatter(entry[name], entry["gamma"], s=3, c="black", alpha=0.3, rasterized=True)
        title = "constant" if rank is None else f"rank correlation {rank:+.2f}"
        axis.set(xscale="symlog" if name == "degree" else "log", xlabel=what, ylabel="gamma")
        axis.set_title(title)
    figure.suptitle(
        f"{label(entry['dataset'])}, {label(entry['config']['backbone'])}, {_name(entry)}: "
        f"{entry['pairs']:,} pairs of a node and a channel"
    )
    return figure


def _draw_functions(axes: Any, entry: Entry) -> None:
    from matplotlib.collections import LineCollection

    slopes, intercepts, low, high = functions(entry)
    x = pieces.knots(slopes, intercepts, low, high)
    paths = np.stack([x, pieces.values(slopes, intercepts, x)], axis=2)
    words = [pieces.coarse(shape) for shape in pieces.shapes(slopes, intercepts, low, high)]
    for axis, word in zip(axes, pieces.CLASSES, strict=True):
        members = paths[[found == word for found in words]]
        lines = LineCollection(
            list(members), colors="black", linewidths=0.5, alpha=0.3, rasterized=True
        )
        axis.add_collection(lines)
        axis.axhline(0, color="black", linewidth=0.6, linestyle=":")
        share = 100 * len(members) / len(words)
        axis.set(xlabel="input x", ylabel="output", title=f"{word}: {share:.1f} %")
        axis.set(xlim=_with_margin(paths[..., 0]), ylim=_with_margin(paths[..., 1]))


def _with_margin(numbers: pieces.Array) -> tuple[float, float]:
    """Limits of an axis: the same for all classes, so that what looks flat is flat."""
    low, high = float(numbers.min()), float(numbers.max())
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def draw_schematic() -> Figure:
    """Section 4.3: ranges that are scaled differently, and GAT's weighting, which has none."""
    import matplotlib.pyplot as plt

    panels = {
        "GReLU, K = 2": ([0.3, 1.0], [0.0, -0.3]),
        "GReLU, K = 3": ([-0.4, 0.2, 1.2], [-0.5, 0.0, -0.8]),
        "GAT: a weighting, any range": ([0.6], [0.0]),
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(9, 2.8), sharey=True)
    ends = np.array([-2.0]), np.array([2.0])
    for axis, (title, (slopes, intercepts)) in zip(axes, panels.items(), strict=True):
        lines = np.array([slopes]), np.array([intercepts])
        for slope, intercept in zip(slopes, intercepts, strict=True):
            x = np.concatenate(ends)
            axis.plot(x, slope * x + intercept, color="grey", linestyle="--", linewidth=0.8)
        x = pieces.knots(*lines, *ends)
        y = pieces.values(*lines, x)
        axis.plot(x[0], y[0], color="black", linewidth=2)
        bends = np.unique(x[0][~np.isin(x[0], ends)])
        bends = bends[[_is_bend(slopes, intercepts, bend) for bend in bends]]
        for place, (left, right) in enumerate(
            zip((-2.0, *bends), (*bends, 2.0), strict=True), start=1
        ):
            if len(slopes) > 1:
                axis.axvspan(left, right, color="black", alpha=0.06 * (place % 2))
                axis.text((left + right) / 2, -1.8, f"$r_{place}$", ha="center")
        axis.set(title=title, xlabel="input x", xlim=(-2, 2), ylim=(-2, 2))
    axes[0].set_ylabel("output")
    return figure


def _is_bend(slopes: Sequence[float], intercepts: Sequence[float], x: float) -> bool:
    """Whether the two highest lines meet there, and not two lower ones."""
    lines = sorted(a * x + b for a, b in zip(slopes, intercepts, strict=True))
    return bool(np.isclose(lines[-1], lines[-2]))


def write(entries: Sequence[Entry], record: Path) -> list[Path]:
    """The files beside the record, of models of one configuration; the page comes first."""
    page = document(entries, record.name)
    table = export.to_csv([row for entry in entries for row in rows_of(entry)], Row)
    return figures.write(record, page, table, lambda: draw(entries[0]))


def write_schematic(prefix: Path) -> list[Path]:
    """The schematic of section 4.3, from formulas alone."""
    with figures.drawing():
        return figures.save(draw_schematic(), prefix)
