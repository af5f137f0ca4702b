"""PageRank, as the looks inside of models have it."""

from __future__ import annotations

import pytest
import torch

from graphrelu.functional import Edges
from graphrelu.lab.engine.look import pagerank


def test_pagerank_by_hand() -> None:
    # 0 -> 1 and a lonely node 2: p0 = a / 3, p1 = a / 3 + (1 - a) p0, p2 = a / 3.
    edges = Edges(torch.tensor([0]), torch.tensor([1]), torch.ones(1).double(), 3)
    found = pagerank(edges, 0.25)
    third = 0.25 / 3
    torch.testing.assert_close(found, torch.tensor([third, 1.75 * third, third]).double())
    # A star keeps all of the mass: leaves share what the centre gives.
    star = Edges(torch.tensor([0, 0, 1, 2]), torch.tensor([1, 2, 0, 0]), torch.ones(4).double(), 3)
    found = pagerank(star, 0.1)
    assert found.sum().item() == pytest.approx(1)
    assert found[1].item() == pytest.approx(0.1 / 3 + 0.9 * found[0].item() / 2)
