"""A graph laid out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch_geometric.data import Data

from graphrelu.lab.data.graph import from_data
from graphrelu.lab.page import explorer
from tests.lab.pages import cell, keep_look, runs


def test_layout_has_every_edge_once(ring: Data) -> None:
    graph = from_data(ring, "ring")
    nodes = explorer.sample(graph, np.arange(3))
    layout = explorer.layout(graph, nodes)
    assert layout["nodes"] == list(range(12))
    assert sorted(map(tuple, layout["edges"])) == sorted(
        tuple(sorted((i, (i + 1) % 12))) for i in range(12)
    )
    assert layout["degree"] == [2] * 12
    place = np.array(layout["place"])
    assert place.min() == 0
    assert place.max() == 1
    next_one, opposite = (
        np.linalg.norm(place - np.roll(place, shift, axis=0), axis=1).mean() for shift in (1, 6)
    )
    assert next_one < opposite


def test_a_look_at_another_edition_is_left_out(ring: Data, tmp_path: Path) -> None:
    graph, config = from_data(ring, "ring"), cell("ring", "gcn", "grelu")
    for nodes, found in ((12, 1), (13, 0)):
        record = tmp_path / f"{nodes}.jsonl"
        keep_look(record, config, nodes)
        layouts, looks = explorer.looks(runs(config), record, {"ring": graph})
        assert (len(layouts), len(looks)) == (found, found)


def test_large_graphs_are_sampled(ring: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer, "DRAWN_NODES", 5)
    nodes = explorer.sample(from_data(ring, "ring"), np.array([0, 6]))
    assert {0, 6} <= set(nodes.tolist()) <= {11, 0, 1, 5, 6, 7}
    assert len(nodes) == 5
