"""``graphrelu compare`` on molecules: a CSV file of SMILES, or ``esol``, which comes with us."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from graphrelu.checks import check_count
from graphrelu.lab.data.molecules import Molecules, SplitKind, read_molecules
from graphrelu.lab.engine.graph_runs import perform_all, read_record
from graphrelu.lab.engine.graph_training import ERRORS, GraphRun, Metric
from graphrelu.lab.models.graph_networks import Network
from graphrelu.lab.render import terminal
from graphrelu.lab.render.tables import CompareRow, Price, percent, verdict
from graphrelu.lab.stats import MARGIN, ONE, Splits, over_relu

if TYPE_CHECKING:
    from rich.console import Console

EMBEDDED = "esol"
EMBEDDED_EPOCHS = 40  # for two cores: 150 s of one for ReLU and GReLU, ten seeds each
ACTIVATIONS = ("relu", "grelu")
RUNS = 10


@dataclass(frozen=True)
class MoleculeComparison:
    """The rows of the comparison, in its first activation's settings, and what was left out."""

    molecules: Molecules
    run: GraphRun
    rows: list[CompareRow]
    entries: list[dict[str, Any]]

    @property
    def note(self) -> str:
        return self.molecules.note


def is_molecules(source: str) -> bool:
    """Whether :func:`compare_molecules` reads this: a CSV file, also compressed, or ``esol``."""
    return source == EMBEDDED or source.lower().endswith((".csv", ".csv.gz"))


def compare_molecules(
    source: str | Molecules,
    activations: Sequence[str] = ACTIVATIONS,
    runs: int = RUNS,
    targets: Sequence[str] = (),
    split: SplitKind | None = None,
    metric: Metric | None = None,
    network: Mapping[str, Any] = {},
    training: Mapping[str, Any] = {},
    margin: float = MARGIN,
    out: Path | None = None,
    device: str = "cpu",
    processes: int | None = None,
    look: int = 1,
    tell: Callable[[str], object] = lambda sentence: None,
) -> MoleculeComparison:
    """Train each activation on the same splits and batches.

    Args:
        source (str or Molecules): A CSV file, ``"esol"``, or what
            :meth:`GraphSet.from_data` makes of a list of PyG's graphs.
        activations (sequence): Their names.
        runs (int): Seeds of each.
        targets (sequence, optional): The columns to predict; all unless given.
        split (str, optional): See :func:`~graphrelu.lab.data.molecules.read_molecules`.
        metric (str, optional): Of values ``"mae"`` (default) or ``"rmse"``; of labels ``"rocauc"``
            (default), ``"ap"`` or ``"accuracy"``.
        network (dict, optional): What differs from :class:`Network`'s defaults.
        training (dict, optional): What differs from :class:`GraphRun`'s defaults; `esol` has 40
            epochs.
        margin (float, optional): The largest difference that does not matter.
        out (Path, optional): A record, from which the same comparison continues.
        device (str, optional): Where to train.
        processes (int, optional): How many runs at once; as many as there are processors, unless
            given, and four on a GPU. A script needs ``if __name__ == "__main__":`` for several.
        look (int, optional): How often this comparison is looked at by now, this time included: a
            comparison that goes on with more runs must count, or luck becomes a finding.
        tell (callable, optional): Takes a sentence on each finished run.
    """
    check_count("look", look)
    molecules = source if isinstance(source, Molecules) else _read(source, targets, split)
    training = {"epochs": EMBEDDED_EPOCHS, **training} if source == EMBEDDED else training
    run = GraphRun(
        molecules.name,
        Network(**{"conv": "gcn", **network}),
        activations[0],
        _metric(molecules, metric),
        **training,
    )
    wanted = [
        GraphRun.from_dict({**run.to_dict(), "activation": name, "seed": seed})
        for seed in range(runs)
        for name in activations
    ]
    for seed in range(runs):
        molecules.parts(seed)  # bad splits are told before any training
    if processes is None:
        processes = 4 if device.startswith("cuda") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="graphrelu-") as scratch:
        molecules.save(Path(scratch) / f"{molecules.name}.npz")
        record = out or Path(scratch) / "runs.jsonl"
        side_by_side = min(processes, len(wanted))
        perform_all(wanted, Path(scratch), record, side_by_side, device=device, tell=tell)
        found = {GraphRun.from_dict(entry["run"]).key(): entry for entry in read_record(record)}
    entries = [found[one.key()] for one in wanted if one.key() in found]
    return MoleculeComparison(molecules, run, _rows(molecules, run, entries, margin, look), entries)


def show(found: MoleculeComparison, screen: Console) -> None:
    """The table on a terminal, what was left out, and the verdict."""
    run, name = found.run, found.molecules.name
    network = f"{run.network.conv}, {run.network.layers} x {run.network.hidden}"
    screen.print(
        f"{name}: {len(found.molecules.y):,} graphs; {network}, {run.epochs} epochs; "
        f"{run.metric} on test graphs.",
        *filter(None, [found.note]),
        "",
        terminal.compare_table(found.rows),
        "",
        *filter(None, [terminal.compare_notes(found.rows)]),
        sep="\n",
    )
    screen.print(verdict(found.rows).sentence, style="bold")


def _read(source: str, targets: Sequence[str], split: SplitKind | None) -> Molecules:
    if source != EMBEDDED:
        return read_molecules(Path(source), targets, split)
    with as_file(files("graphrelu.lab.data") / "esol.csv") as path:
        return read_molecules(path, targets, split)


def _metric(molecules: Molecules, metric: Metric | None) -> Metric:
    """The metric, if it fits the targets."""
    known: dict[str, tuple[Metric, ...]] = {
        "values": ("mae", "rmse"),
        "labels": ("rocauc", "ap", "accuracy"),
        "classes": ("accuracy", "rocauc"),
    }
    fitting = known[molecules.task]
    if metric is not None and metric not in fitting:
        what = f"metric must be one of {', '.join(fitting)} for targets that are {molecules.task}"
        raise ValueError(f"{what}, not {metric!r}.")
    return metric or fitting[0]


def _rows(
    molecules: Molecules,
    run: GraphRun,
    entries: Sequence[dict[str, Any]],
    margin: float,
    look: int,
) -> list[CompareRow]:
    is_error = run.metric in ERRORS
    runs: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        runs.setdefault(entry["run"]["activation"], []).append(entry)
    scores = {
        name: {e["run"]["seed"]: -e["score"] if is_error else e["score"] for e in own}
        for name, own in runs.items()
    }
    prices = {
        name: Price(
            seconds_per_epoch=fmean(e["seconds"] / e["run"]["epochs"] for e in own),
            parameters=own[0]["parameters"],
            peak_memory=own[0]["peak_memory"],
        )
        for name, own in runs.items()
    }
    lost = {
        name: sum(e["curves"]["train_loss"][-1] is None for e in own) for name, own in runs.items()
    }
    train, _, test = molecules.parts(0)
    splits = ONE
    if molecules.split is None:
        splits = Splits(len(train) / len(molecules.y), len(test) / len(train), len(test))
    leads = over_relu(scores, splits, margin, (look, look), is_error)
    return [
        CompareRow(
            name, *percent(own, is_error), leads.get(name), prices[name], lost[name], is_error
        )
        for name, own in scores.items()
    ]
