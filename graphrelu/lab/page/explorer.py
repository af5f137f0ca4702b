"""The graph explorer: where to draw each node, and the functions that GReLU learned on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path

from graphrelu.lab.data.graph import Graph
from graphrelu.lab.engine.keep import inspection_path, read_look
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.results import Result
from graphrelu.lab.render import label

Numbers: TypeAlias = NDArray[np.float64]
Nodes: TypeAlias = NDArray[np.int64]
Plain: TypeAlias = dict[str, Any]
Look: TypeAlias = dict[str, np.ndarray]

DRAWN_NODES = 400
DRAWN_CHANNELS = 12
# By atomic number; the others are named by it.
ELEMENTS = {1: "H", 5: "B", 6: "C", 7: "N", 8: "O", 9: "F", 11: "Na", 14: "Si", 15: "P", 16: "S"}
ELEMENTS |= {17: "Cl", 19: "K", 33: "As", 34: "Se", 35: "Br", 53: "I"}


def kept_looks(results: Sequence[Result], record: Path) -> list[tuple[Config, Look]]:
    """What was kept beside the record of the GReLUs of some runs."""
    configs = dict.fromkeys(r.config for r in results if r.config.activation == "grelu")
    paths = [(config, inspection_path(record, config.key())) for config in configs]
    return [(config, read_look(path)) for config, path in paths if path.is_file()]


def shows_a_set(look: Look) -> bool:
    """Whether a look holds the graphs that it is about: some of a set."""
    return "node_count" in look


def kept_models(
    looks: Sequence[tuple[Config, Look]], graphs: Mapping[str, Graph], drawn: dict[str, Plain]
) -> list[Plain]:
    """Of each GReLU of each model its functions on the graphs, which are added to those drawn."""
    found = []
    for config, look in looks:
        layers = [name.removesuffix(".nodes") for name in look if name.endswith(".nodes")]
        graph = graphs.get(config.dataset)
        if not layers:
            continue
        if shows_a_set(look):
            own = {f"{config.key()}-{i}": one for i, one in enumerate(parts_of(look, layers))}
        elif graph is None or len(look["prediction"]) != graph.num_nodes:
            continue  # it is not at hand, or another edition of it
        else:
            known = drawn.get(config.dataset) or draw(graph, look[f"{layers[0]}.nodes"])
            own = {config.dataset: (known, look)}
        drawn |= {key: part for key, (part, _) in own.items()}
        options = "".join(f", {name}={value}" for name, value in config.told_options)
        title = f"{label(config.dataset)}, {label(config.backbone)}{options}"
        for layer in layers:
            parts = [
                {"graph": key, **functions(seen, layer, np.array(part["nodes"]))}
                for key, (part, seen) in own.items()
            ]
            found.append({"name": f"{title}, {layer}", "seed": int(look["seed"]), "parts": parts})
    return found


def functions(look: Look, layer: str, nodes: Nodes) -> Plain:
    """One GReLU: gamma and prediction of the drawn nodes, the functions of some of them."""
    gamma, slopes, intercepts = (
        look[f"{layer}.{name}"].astype(float) for name in ("gamma", "slopes", "intercepts")
    )
    channels = np.unique(np.linspace(0, slopes.shape[2] - 1, DRAWN_CHANNELS).round().astype(int))
    return {
        "gamma": _digits(gamma.mean(axis=1)[nodes]),
        "prediction": look["prediction"][nodes].tolist() if "prediction" in look else [],
        "nodes": look[f"{layer}.nodes"].tolist(),
        "channels": channels.tolist(),
        "slopes": _digits(slopes[:, :, channels]),
        "intercepts": _digits(intercepts[:, :, channels]),
    }


def parts_of(look: Look, layers: Sequence[str]) -> Iterator[tuple[Plain, Look]]:
    """Each graph of a look that shows a set, drawn, and the part of the look that is about it."""
    source = look["edge_index"][0]
    ends = look["node_count"].cumsum()
    for i, end in enumerate(ends):
        count = int(look["node_count"][i])
        start, part = end - count, {}
        for layer in layers:
            nodes = look[f"{layer}.nodes"]
            own = (nodes >= start) & (nodes < end)
            part[f"{layer}.nodes"] = nodes[own] - start
            part[f"{layer}.slopes"] = look[f"{layer}.slopes"][own]
            part[f"{layer}.intercepts"] = look[f"{layer}.intercepts"][own]
            part[f"{layer}.gamma"] = look[f"{layer}.gamma"][start:end]
        edge_index = look["edge_index"][:, (source >= start) & (source < end)] - start
        graph = layout(edge_index, sample(edge_index, count, part[f"{layers[0]}.nodes"]), count)
        target, prediction = look["target"][i], look["prediction"][i]
        known = "unknown" if np.isnan(target) else f"{target:.4g}"
        size = f"{count:,} node{'s' * (count > 1)}"
        graph["name"] = f"{size}, target {known}, predicted {prediction:.4g}"
        if "atoms" in look:
            numbers = look["atoms"][start:end][graph["nodes"]].tolist()
            graph["atoms"] = [ELEMENTS.get(number, str(number)) for number in numbers]
        yield graph, part


def draw(graph: Graph, chosen: Nodes) -> Plain:
    """A single graph, with the labels of its nodes."""
    edge_index = graph.edge_index.numpy()
    nodes = sample(edge_index, graph.num_nodes, chosen)
    labels = graph.y.numpy()[nodes].tolist()
    return layout(edge_index, nodes, graph.num_nodes) | {"label": labels}


def sample(edge_index: Nodes, count: int, chosen: Nodes) -> Nodes:
    """All nodes of a small graph; of a larger one the chosen nodes and some of their neighbours."""
    if count <= DRAWN_NODES:
        return np.arange(count, dtype=np.int64)
    source, target = edge_index
    near = target[np.isin(source, chosen)]
    spread = near[np.linspace(0, len(near) - 1, min(len(near), 4 * DRAWN_NODES)).astype(int)]
    kept = list(dict.fromkeys([*chosen.tolist(), *spread.tolist()]))
    return np.sort(np.array(kept[:DRAWN_NODES], dtype=np.int64))


def layout(edge_index: Nodes, nodes: Nodes, count: int) -> Plain:
    """Positions in the unit square, edges once, and degrees."""
    source, target = edge_index
    inside = np.isin(source, nodes) & np.isin(target, nodes)
    ends = np.searchsorted(nodes, np.stack([source[inside], target[inside]], axis=1))
    ends = np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1)
    edges = np.unique(ends, axis=0).astype(np.int64)
    degree = np.bincount(source, minlength=count)
    return {
        "total": count,
        "nodes": nodes.tolist(),
        "place": _digits(_places(len(nodes), edges)),
        "edges": edges.tolist(),
        "degree": degree[nodes].tolist(),
    }


def _places(count: int, edges: Nodes) -> Numbers:
    """Where the distances of nodes are about those along the edges (Kamada-Kawai)."""
    from networkx import empty_graph, kamada_kawai_layout

    joined = np.zeros((count, count))
    joined[edges[:, 0], edges[:, 1]] = 1
    steps = shortest_path(joined, directed=False, unweighted=True)
    steps = np.minimum(steps, steps[np.isfinite(steps)].max() + 1)  # parts stay near each other
    apart = {node: dict(enumerate(row)) for node, row in enumerate(steps)}
    place = np.stack([*kamada_kawai_layout(empty_graph(count), apart).values()])
    low, high = place.min(axis=0), place.max(axis=0)
    return np.asarray((place - low) / np.maximum(high - low, 1e-9))


def _digits(values: Numbers) -> Any:
    """Nested lists with three decimals: enough to draw, and a third of the size."""
    return np.round(values.astype(float), 3).tolist()
