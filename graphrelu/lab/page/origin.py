"""Where the numbers of the page come from, and the commands that repeat them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from graphrelu.lab.record import divergence
from graphrelu.lab.record.config import FOLD_SPLITS, Config
from graphrelu.lab.record.recipes import (
    ACTIVATIONS,
    GRAPH_DATASETS,
    NODE_DATASETS,
    family_of,
    graph_cell,
    modern,
    recipe,
)
from graphrelu.lab.record.results import Result


def origin_of(results: Sequence[Result]) -> dict[str, Any]:
    """Where and when runs took place, and how their nodes were split."""
    names = ("device", "versions", "date", "commit")
    measured = [{name: getattr(result, name) for name in names} for result in results]
    splits = list(dict.fromkeys(result.note for result in results))[:3]
    lost = divergence.sentence(results)
    return {"runs": len(results), **surroundings_of(measured), "splits": splits, "diverged": lost}


def surroundings_of(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The devices, versions, dates and commits of runs or timings."""
    dates = sorted(entry["date"] for entry in measured)
    versions = {f"{name} {v}" for entry in measured for name, v in entry["versions"].items()}
    return {
        "devices": sorted({entry["device"] for entry in measured}),
        "versions": sorted(versions),
        "dates": [dates[0], dates[-1]],
        "commits": sorted({entry["commit"] for entry in measured if entry["commit"]}),
    }


def command(configs: Sequence[Config], runs: int) -> str | None:
    """The command that repeats a cell; ``None`` if the command line cannot express its settings."""
    first = configs[0]
    settings = {
        name: getattr(first, name)
        for name in ("split", "metric", "hidden", "epochs", "lr", "weight_decay", "dropout")
    }
    for config in configs:
        names = (config.backbone, config.activation)
        if config.split in FOLD_SPLITS and first.dataset in GRAPH_DATASETS:
            again = graph_cell(first.dataset, *names, **settings)
        elif first.is_deep and (first.dataset in NODE_DATASETS or first.dataset == "digits"):
            stops = {"progress": "either"}  # as every comparison
            again = modern(first.dataset, *names, **(settings | _network(first) | stops))
        elif first.dataset in NODE_DATASETS:
            if config.activation not in ACTIVATIONS:
                return None
            again = recipe(first.dataset, family_of(first.dataset), *names, **settings)
        else:
            return None
        if again != config:
            return None
    options = {"backbone": first.backbone, "activations": ",".join(c.activation for c in configs)}
    options |= {"runs": runs} | settings
    if first.is_deep:
        network = _network(first)
        options |= network | {"norm": network["norm"] or "none"}
    return compare_command(first.dataset, options)


def _network(config: Config) -> dict[str, Any]:
    """The settings of a deep network that the command line has, beside those of any network."""
    options: dict[str, Any] = dict(config.backbone_options)
    network = {name: options[name] for name in ("layers", "norm", "residual")}
    other = ("patience", "normalize_features")
    return network | {name: getattr(config, name) for name in other}


def compare_command(dataset: str, options: Mapping[str, Any]) -> str:
    """``graphrelu compare`` with all options that are not ``None``."""
    words = ["graphrelu", "compare", dataset]
    for name, value in options.items():
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
        elif value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)
