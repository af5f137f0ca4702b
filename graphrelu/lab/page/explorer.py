"""The graph explorer: where to draw each node, and the functions that GReLU learned on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphrelu.lab.data.graph import Graph
from graphrelu.lab.engine.keep import inspection_path, read_look
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.results import Result
from graphrelu.lab.render.tables import label

Numbers: TypeAlias = NDArray[np.float64]
Nodes: TypeAlias = NDArray[np.int64]

DRAWN_NODES = 400
DRAWN_CHANNELS = 12
LAYOUT_STEPS = 120


def kept_configs(results: Sequence[Result], record: Path) -> list[Config]:
    """The configurations of some runs of which a GReLU was kept beside the record."""
    configs = dict.fromkeys(r.config for r in results if r.config.activation == "grelu")
    return [config for config in configs if inspection_path(record, config.key()).is_file()]


def kept_models(
    results: Sequence[Result], record: Path, graphs: Mapping[str, Graph]
) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """The drawn graphs, and the GReLUs of each model that was kept and whose graph is there."""
    drawn: dict[str, dict[str, Any]] = {}
    found = []
    for config in kept_configs(results, record):
        graph = graphs.get(config.dataset)
        content = read_look(inspection_path(record, config.key()))
        layers = [name.removesuffix(".nodes") for name in content if name.endswith(".nodes")]
        if graph is None or not layers or len(content["prediction"]) != graph.num_nodes:
            continue  # it is not at hand, or another edition of it
        if config.dataset not in drawn:
            drawn[config.dataset] = layout(graph, sample(graph, content[f"{layers[0]}.nodes"]))
        nodes = np.array(drawn[config.dataset]["nodes"])
        found += [functions(config, nodes, content, layer) for layer in layers]
    return drawn, found


def functions(config: Config, nodes: Nodes, content: dict[str, Any], layer: str) -> dict[str, Any]:
    """One GReLU: gamma and prediction of the drawn nodes, the functions of some of them."""
    gamma, slopes, intercepts = (
        content[f"{layer}.{name}"].astype(float) for name in ("gamma", "slopes", "intercepts")
    )
    channels = np.unique(np.linspace(0, slopes.shape[2] - 1, DRAWN_CHANNELS).round().astype(int))
    options = "".join(f", {name}={value}" for name, value in config.told_options)
    return {
        "graph": config.dataset,
        "name": f"{label(config.dataset)}, {label(config.backbone)}{options}, {layer}",
        "seed": int(content["seed"]),
        "gamma": _digits(gamma.mean(axis=1)[nodes]),
        "prediction": content["prediction"][nodes].tolist(),
        "nodes": content[f"{layer}.nodes"].tolist(),
        "channels": channels.tolist(),
        "slopes": _digits(slopes[:, :, channels]),
        "intercepts": _digits(intercepts[:, :, channels]),
    }


def sample(graph: Graph, chosen: Nodes) -> Nodes:
    """All nodes of a small graph; of a larger one the chosen nodes and some of their neighbours."""
    if graph.num_nodes <= DRAWN_NODES:
        return np.arange(graph.num_nodes, dtype=np.int64)
    source, target = graph.edge_index.numpy()
    near = target[np.isin(source, chosen)]
    spread = near[np.linspace(0, len(near) - 1, min(len(near), 4 * DRAWN_NODES)).astype(int)]
    kept = list(dict.fromkeys([*chosen.tolist(), *spread.tolist()]))
    return np.sort(np.array(kept[:DRAWN_NODES], dtype=np.int64))


def layout(graph: Graph, nodes: Nodes) -> dict[str, Any]:
    """Positions in the unit square by springs (Fruchterman-Reingold), edges once, and degrees."""
    source, target = graph.edge_index.numpy()
    inside = np.isin(source, nodes) & np.isin(target, nodes)
    ends = np.searchsorted(nodes, np.stack([source[inside], target[inside]], axis=1))
    ends = np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1)
    edges = np.unique(ends, axis=0).astype(np.int64)
    degree = np.bincount(source, minlength=graph.num_nodes)
    return {
        "name": label(graph.name),
        "total": graph.num_nodes,
        "nodes": nodes.tolist(),
        "place": _digits(_springs(len(nodes), edges)),
        "edges": edges.tolist(),
        "degree": degree[nodes].tolist(),
        "label": graph.y.numpy()[nodes].tolist(),
    }


def _springs(count: int, edges: Nodes) -> Numbers:
    place = np.random.default_rng(0).uniform(-0.5, 0.5, (count, 2))
    pulled = np.zeros((count, count))
    pulled[edges[:, 0], edges[:, 1]] = pulled[edges[:, 1], edges[:, 0]] = 1
    length = (1 / max(count, 1)) ** 0.5
    for step in np.linspace(0.1, 0.002, LAYOUT_STEPS):
        apart = place[:, None, :] - place[None, :, :]
        distance = np.maximum(np.linalg.norm(apart, axis=2), 1e-3)
        force = length**2 / distance**2 - pulled * distance / length
        # A weak pull to the middle keeps the parts of a graph that is not connected together.
        move = (apart * force[:, :, None]).sum(axis=1) - 2 * place
        reach = np.maximum(np.linalg.norm(move, axis=1, keepdims=True), 1e-9)
        place = place + move / reach * np.minimum(reach, step)
    low, high = place.min(axis=0), place.max(axis=0)
    return np.asarray((place - low) / np.maximum(high - low, 1e-9))


def _digits(values: Numbers) -> Any:
    """Nested lists with three decimals: enough to draw, and a third of the size."""
    return np.round(values.astype(float), 3).tolist()
