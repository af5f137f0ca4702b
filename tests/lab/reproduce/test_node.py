"""The main table by hand, beside the paper's."""

from __future__ import annotations

import pytest

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, NODE_DATASETS, node_table, recipe
from graphrelu.lab.record.results import Result
from graphrelu.lab.reproduce import node, shown
from tests.lab.fake_engine import make_result


def main_table(n: int, leads: dict[str, float]) -> list[Result]:
    """Every cell of the main table: the same ReLU scores, the others ahead by these points."""

    def score(config: Config, seed: int) -> float:
        ahead = leads.get(config.activation, 0.0) * (1 + 0.01 * seed)
        return 0.79 + 0.001 * (seed % 4) + ahead / 100

    cells = reversed(node_table())
    return [make_result(c, seed, score(c, seed)) for c in cells for seed in range(n)]


def test_rows_beside_the_paper() -> None:
    rows = node.TABLE.rows(main_table(12, {"grelu": 1.0, "elu": 3.0}))
    names = [(row.dataset, row.backbone, row.activation) for row in rows]
    assert names == [(d, b, a) for d in NODE_DATASETS for b in BACKBONES for a in ACTIVATIONS]
    by_name = dict(zip(names, rows, strict=True))
    relu = by_name["cora", "gcn", "relu"]
    assert (relu.mean, relu.n) == (pytest.approx(79.15), 12)
    assert (relu["paper_mean"], relu["paper_std"]) == (79.2, 1.4)
    assert relu["difference"] == pytest.approx(-0.05)
    assert relu["over_relu"] is None
    assert by_name["flickr", "cheb", "relu"]["difference"] is None  # the paper has none
    grelu = by_name["cora", "gcn", "grelu"]["over_relu"]
    assert grelu.difference == pytest.approx(1.055)
    assert grelu.outcome == "better"
    counted = shown.tallies(rows, "grelu_over_it").splitlines()
    assert counted[2] == "| ReLU | 30 | 0 | 0 | 0 | 30 |"
    assert counted[4] == "| ELU | 0 | 0 | 0 | 30 | 0 |"


def test_a_deviation_of_exactly_one_counts() -> None:
    """Published for GCN on Cora: ReLU 79.2 ± 1.4, LReLU 79.4 ± 1.6."""
    scores = {"relu": 0.806, "lrelu": 0.8101, "grelu": 0.5}
    cells = {name: recipe("cora", "gcn", name) for name in scores}
    rows = node.TABLE.rows([make_result(cells[name], 0, score) for name, score in scores.items()])
    within, others = node.checked(rows)
    assert ([row.name for row in within], [row.name for row in others]) == (["relu"], ["lrelu"])
