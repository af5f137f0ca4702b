"""The paper's observations: each line follows the records."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from graphrelu.lab.record.recipes import GRAPH_BACKBONES, GRAPH_DATASETS, graph_cell, node_table
from graphrelu.lab.record.results import Result
from graphrelu.lab.render.findings import Observation, in_all
from graphrelu.lab.reproduce import graph, node, observations
from tests.lab.fake_engine import lead, make_result


def node_runs(leads: dict[tuple[str, str], float]) -> list[Result]:
    """Made-up runs of two graphs; leads, in points, by backbone and activation."""
    return [
        make_result(
            config,
            seed,
            0.5
            + 0.007 * (seed % 5)
            + leads.get((config.backbone, config.activation), 0) * (1 + seed / 99) / 100,
        )
        for config in node_table(["blogcatalog", "flickr"], ["gcn", "gat", "arma"])
        for seed in range(14)
    ]


def claims(runs: list[Result]) -> list[Observation]:
    return observations.of_main_table(node.TABLE.rows(runs))


def test_main_table() -> None:
    ahead = {(backbone, "grelu"): 10.0 for backbone in ("gcn", "gat", "arma")}
    best, blogcatalog, flickr, gat = claims(node_runs(ahead))
    assert (best.outcome, best.paper) == ("holds", "the highest mean in 28 of 28 cells")
    assert best.ours == (
        "better in 30 of 30 comparisons, worse in 0, no difference in 0; leads from +10.7 to +10.7 "
        "points, over 14 seeds; the highest mean in 6 of 6 cells"
    )
    assert (blogcatalog.paper, blogcatalog.outcome) == ("+13.2 points", "does not hold")
    assert (flickr.paper, flickr.outcome) == ("+8.1 points", "holds")
    assert (gat.outcome, gat.paper) == ("holds", "higher in 21 of 25 comparisons")

    elsewhere = claims(node_runs(ahead | {("gat", "elu"): 11.0}))
    assert [o.outcome for o in elsewhere] == ["does not hold"] * 2 + ["holds", "does not hold"]
    equal = claims(node_runs({}))
    assert [o.outcome for o in equal] == ["does not hold"] * 4
    assert {o.outcome for o in claims([])} == {"not measured yet"}


def test_one_cell_refutes_and_all_confirm() -> None:
    assert in_all([lead(1), lead(2)]) == "holds"
    assert in_all([lead(1), lead(2, 3)]) == "undecided"
    assert in_all([lead(1), lead(2, 3), lead(-1)]) == "does not hold"
    assert in_all([lead(1), lead(0.1, 0.2)]) == "does not hold"  # nothing that matters


def test_a_claim_of_a_size() -> None:
    """The whole interval must say it: +1.0 [0.1, 1.9] is no lead as large as +1.8."""
    assert observations.reaches(lead(1.0, 0.9), 1.8) == "undecided"
    assert observations.reaches(lead(10, 1), 8.1) == "holds"
    assert observations.reaches(lead(4.5, 3.5), 8.1) == "does not hold"
    assert observations.reaches(lead(4, 5), 8.1) == "undecided"
    assert observations.reaches(lead(9, None), 8.1) == "undecided"
    assert observations.reaches(None, 8.1) == "not measured yet"


def test_graph_classification() -> None:
    """The wider network is chosen on validation folds, though the other has higher test scores."""
    results = []
    for dataset, backbone in product(GRAPH_DATASETS, GRAPH_BACKBONES):
        for activation, score in (("relu", 0.70), ("grelu", 0.72)):
            for hidden, val_score, more in ((64, 0.6, 0.2), (32, 0.7, 0.0)):
                config = graph_cell(dataset, backbone, activation, hidden, 3)
                for seed in range(40):
                    bonus = more if activation == "relu" else 0.0
                    result = make_result(config, seed, score * (1 + seed / 1000) + bonus)
                    results.append(replace(result, val_score=val_score))
    (found,) = graph.observations(graph.TABLE.rows(results))
    assert (found.paper, found.outcome) == ("+0.5 to +1.6 points", "holds")
    assert found.ours == (
        "better in 6 of 6 comparisons, worse in 0, no difference in 0; leads from +2.0 to +2.0 "
        "points, over 40 seeds"
    )
    assert graph.observations([])[0].outcome == "not measured yet"
