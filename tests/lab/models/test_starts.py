"""A seed means the same initial weights in every version, as records are continued."""

from typing import Any

import pytest
import torch

from graphrelu.lab.models.activations import ACTIVATIONS
from graphrelu.lab.models.backbones import GNN, DeepGNN
from graphrelu.lab.models.graph_networks import GraphNetwork, Network
from tests.lab.molecule_sets import ring_set

DEEP: dict[str, Any] = {"layers": 3, "norm": "layer", "residual": True, "linear_first": True}
EVERYTHING: dict[str, Any] = {"walks": 3, "walk_width": 4, "virtual_node": True}
STARTS = {
    "activation maxout": 3.715974,
    "activation digraf": 0.974389,
    "activation digraf-plain": -6.191099,
    "GNN cheb": 0.762863,
    "GNN gcn": 5.072579,
    "GNN sage": -0.227135,
    "GNN gat": -7.032352,
    "GNN arma": 5.246589,
    "GNN appnp": -0.255745,
    "GNN sgc": 1.415447,
    "DeepGNN gcn": 29.333508,
    "DeepGNN sage": 34.140894,
    "DeepGNN gat": 35.591619,
    "DeepGNN gin": 36.765046,
    "DeepGNN cheb": 38.501002,
    "DeepGNN arma": 49.840340,
    "DeepGNN appnp": 37.323379,
    "GraphNetwork gcn": 69.612915,
    "GraphNetwork gine": 68.702187,
    "GraphNetwork gin": 87.788021,
    "GraphNetwork gat": 67.386595,
    "GraphNetwork sage": 68.826003,
    "GraphNetwork bond": 101.765137,
}


def start_of(name: str) -> torch.nn.Module:
    torch.manual_seed(1)
    kind, _, which = name.partition(" ")
    if kind == "activation":
        return ACTIVATIONS[which](8)
    if kind == "GNN":
        return GNN(which, 9, 8, 4, "digraf")
    if kind == "DeepGNN":
        return DeepGNN(which, 9, 8, 4, "maxout", **DEEP)
    graphs = ring_set()
    network = Network(which, 2, 8, feed_forward=which == "bond", **EVERYTHING)  # type: ignore[arg-type]
    return GraphNetwork(network, graphs.nodes, graphs.edges, 2, "digraf")


def fingerprint(model: torch.nn.Module) -> float:
    """Another one where a number is another, or in another place."""
    numbers = torch.cat([p.detach().double().flatten() for p in model.parameters()])
    return float(numbers @ torch.linspace(1, 2, len(numbers), dtype=torch.double))


@pytest.mark.parametrize("name", STARTS)
def test_a_seed_stays_what_it_was(name: str) -> None:
    assert fingerprint(start_of(name)) == pytest.approx(STARTS[name], rel=1e-5)
