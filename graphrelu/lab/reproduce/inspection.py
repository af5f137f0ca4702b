"""A look inside: the functions that a trained model's GReLU applies, and gamma over the nodes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrelu import functional
from graphrelu.diffusion import as_edges
from graphrelu.functional import Edges
from graphrelu.lab.compare import prepare
from graphrelu.lab.data.checksums import sha256
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.engine import choose_device, prepare_inputs
from graphrelu.lab.engine.keep import file_name, grelu_calls, read_model, saved_model, trained_model
from graphrelu.lab.engine.memory import fitting_seeds
from graphrelu.lab.engine.train import train
from graphrelu.lab.models.backbones import NodeNetwork
from graphrelu.lab.record import kinds, output
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.entries import Entries, Entry
from graphrelu.lab.record.machine import surroundings
from graphrelu.lab.reproduce.experiment import Experiment, Request, standing

PAIRS = 1_000
# A channel's range is what it sees: from the 1st to the 99th percentile of its inputs.
PERCENTILES = (0.01, 0.99)
PAGERANK_STEPS = 200  # (1 - alpha) ** steps of the mass is still on its way: 1e-9 for alpha = 0.1
QUICK_EPOCHS = 60
IDENTITY = ("dataset", "key", "seed", "pairs", "model")
FIELDS: dict[str, kinds.Kind] = {
    **dict.fromkeys(("dataset", "key"), kinds.text),
    **dict.fromkeys(("seed", "pairs"), kinds.whole),
    "model": kinds.optional(kinds.text),
    "alpha": kinds.number,
    **dict.fromkeys(("slopes", "intercepts"), kinds.listed(kinds.listed(kinds.number))),
    **dict.fromkeys(("low", "high", "gamma", "degree", "pagerank"), kinds.listed(kinds.number)),
    "config": lambda config: isinstance(config, dict) and kinds.text(config.get("backbone")),
    **kinds.SURROUNDINGS,
}


def default_prefix(dataset: str) -> Path:
    """Where the files of a look go unless the user says otherwise."""
    return Path("results", "quick", f"inspect-{file_name(dataset)}")


def record_of(path: Path) -> Entries:
    return Entries(path, "inspected", IDENTITY, FIELDS)


def collect(request: Request) -> str:
    """Trains a GCN for each seed that the record lacks, and looks inside."""
    request.stays_here()
    deadline = request.deadline()
    record = record_of(output.check_record(request.out))
    (dataset,) = request.datasets("citeseer")
    finished = inspect_trained(
        record,
        dataset,
        "gcn",
        range(request.runs),
        PAIRS,
        root=request.root,
        device=request.device,
        epochs=QUICK_EPOCHS if request.quick else None,
        deadline=deadline,
    )
    return standing(len(finished), request.runs, request.out, "models")


def inspect_trained(
    record: Entries,
    dataset: str,
    backbone: str,
    seeds: Sequence[int],
    pairs: int,
    *,
    root: str | Path | None = None,
    device: str = "auto",
    epochs: int | None = None,
    deadline: float = math.inf,
) -> list[Entry]:
    """Trains what the record lacks by the recipe; returns those of these looks that are there.

    After ``deadline``, a value of ``time.monotonic()``, nothing new is trained.
    """
    where = choose_device(device)
    graph, config = _cell(dataset, backbone, seeds, root, epochs)
    wanted = [_identity(config, seed, pairs, None) for seed in seeds]
    found = {record.key(entry): entry for entry in record.read()}
    missing = [entry["seed"] for entry in wanted if record.key(entry) not in found]
    if missing:
        inputs = prepare_inputs(config, graph, where)
        at_once = fitting_seeds(config, graph, where)
        for start in range(0, len(missing), at_once):
            if time.monotonic() > deadline:
                break
            batch, _ = train(config, graph, inputs, missing[start : start + at_once], where)
            for seed in batch.seeds:
                entry = _identity(config, seed, pairs, None)
                entry |= look(trained_model(batch, seed), graph, inputs, seed, pairs)
                record.append([entry | {"config": config.to_dict()} | surroundings(where)])
        found = {record.key(entry): entry for entry in record.read()}
    return [found[record.key(entry)] for entry in wanted if record.key(entry) in found]


def _cell(
    dataset: str,
    backbone: str,
    seeds: Sequence[int],
    root: str | Path | None,
    epochs: int | None = None,
) -> tuple[Graph, Config]:
    graph, (config,) = prepare(dataset, backbone, ["grelu"], seeds, root=root, epochs=epochs)
    if isinstance(graph, GraphSet):
        raise ValueError(
            f"{dataset} is a set of graphs; only models of one graph can be looked at."
        )
    return graph, config


def inspect_saved(
    record: Entries,
    dataset: str,
    path: Path,
    pairs: int,
    *,
    root: str | Path | None = None,
    device: str = "auto",
) -> list[Entry]:
    """A look inside of a model that ``graphrelu compare --save`` kept."""
    where = choose_device(device)
    config, seed, state = read_model(path)
    graph, expected = _cell(dataset, "gcn", [seed], root)  # for the name alone
    if config.dataset != expected.dataset:
        raise ValueError(f"{path} is a model of {config.dataset}, not of {expected.dataset}.")
    identity = _identity(config, seed, pairs, sha256(path)[:12])
    found = {record.key(entry): entry for entry in record.read()}
    if record.key(identity) not in found:
        model = saved_model(config, graph, seed, state, path)
        inputs = prepare_inputs(config, graph, where)
        entry = identity | look(model.to(where), graph, inputs, seed, pairs)
        record.append([entry | {"config": config.to_dict()} | surroundings(where)])
        found = {record.key(entry): entry for entry in record.read()}
    return [found[record.key(identity)]]


@torch.no_grad()
def look(model: NodeNetwork, graph: Graph, inputs: Any, seed: int, pairs: int) -> Entry:
    """Slopes, intercepts and range of random pairs of a node and a channel, no pair twice; and
    gamma, degree and PageRank of all nodes. Of several GReLUs it is a look at the first."""
    _, calls = grelu_calls(model, inputs)
    act, args = next(iter(calls.values()))
    x = args[0]
    slopes, intercepts = (part.transpose(1, 2).flatten(0, 1) for part in act.coefficients(*args))
    if not 1 <= pairs <= x.numel():
        raise ValueError(f"pairs must be from 1 to {x.numel():,}, nodes by channels, not {pairs}.")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(x.numel(), generator=generator)[:pairs].to(x.device)
    channel = chosen % x.size(1)
    low, high = x.double().quantile(torch.tensor(PERCENTILES, device=x.device).double(), dim=0)
    edges = as_edges(graph.edge_index, graph.edge_weight, graph.num_nodes, torch.double)
    return {
        "alpha": act.alpha,
        "node": (chosen // x.size(1)).tolist(),
        "channel": channel.tolist(),
        "slopes": _plain(slopes[chosen]),
        "intercepts": _plain(intercepts[chosen]),
        "low": _plain(low[channel]),
        "high": _plain(high[channel]),
        "gamma": _plain(act.gamma(*args).mean(dim=1)),
        "degree": _plain(torch.zeros(graph.num_nodes).double().index_add(0, *edges[1:3])),
        "pagerank": _plain(pagerank(edges, act.alpha)),
    }


def pagerank(edges: Edges, alpha: float) -> Tensor:
    """The share of visits of a walk that starts anew anywhere with probability alpha, ``[N]``.

    A walk at a node without a way out ends there.
    """
    out_degree = torch.zeros(edges.num_nodes, dtype=edges.weight.dtype)
    out_degree = out_degree.index_add(0, edges.source, edges.weight)
    walk = edges._replace(weight=edges.weight / out_degree[edges.source])
    start = torch.full((edges.num_nodes, 1), 1 / edges.num_nodes, dtype=edges.weight.dtype)
    return functional.pagerank(start, walk, alpha, PAGERANK_STEPS, "power").view(-1)


def _identity(config: Config, seed: int, pairs: int, model: str | None) -> Entry:
    names = {"dataset": config.dataset, "key": config.key()}
    return names | {"seed": seed, "pairs": pairs, "model": model}


def _plain(tensor: Tensor) -> Any:
    """Numbers of six digits in nested lists."""
    if tensor.dim() > 1:
        return [_plain(row) for row in tensor]
    return [float(f"{value:.6g}") for value in tensor.tolist()]


def render(record: Path) -> list[Path]:
    """The page, the table and the figure of the newest models on record, and the schematic."""
    from graphrelu.lab.reproduce.inspection_page import write, write_schematic

    entries = record_of(record).required()
    cell = entries[-1]["dataset"], entries[-1]["key"], entries[-1]["pairs"]
    newest = [e for e in entries if (e["dataset"], e["key"], e["pairs"]) == cell]
    return [*write(newest, record), *write_schematic(record.with_name("schematic"))]


EXPERIMENT = Experiment(runs=1, quick_runs=1, collect=collect, render=render)
