"""A look inside a trained model: the functions that its GReLU applies, and gamma of the nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphrelu import functional
from graphrelu.functional import Edges
from graphrelu.graph import as_edges
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.engine.keep import grelu_calls
from graphrelu.lab.models.backbones import GNN

# The range of a channel: from the 1st to the 99th percentile of its inputs.
PERCENTILES = (0.01, 0.99)
PAGERANK_STEPS = 200  # the rest, (1 - alpha) ** steps, is 1e-9 for alpha = 0.1


@torch.no_grad()
def look(model: GNN, graph: Graph, inputs: Any, seed: int, pairs: int) -> dict[str, Any]:
    """Slopes, intercepts and range of random pairs of a node and a channel, no pair twice; and
    gamma, degree and PageRank of all nodes. Only the first GReLU of a model is read."""
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
    """The share of visits of a random walk that restarts with probability alpha, ``[N]``.

    The walk ends at a node without outgoing edges.
    """
    out_degree = torch.zeros(edges.num_nodes, dtype=edges.weight.dtype)
    out_degree = out_degree.index_add(0, edges.source, edges.weight)
    walk = edges._replace(weight=edges.weight / out_degree[edges.source])
    start = torch.full((edges.num_nodes, 1), 1 / edges.num_nodes, dtype=edges.weight.dtype)
    return functional.pagerank(start, walk, alpha, PAGERANK_STEPS, "power").view(-1)


def _plain(tensor: Tensor) -> Any:
    """Numbers of six digits in nested lists."""
    if tensor.dim() > 1:
        return [_plain(row) for row in tensor]
    return [float(f"{value:.6g}") for value in tensor.tolist()]
