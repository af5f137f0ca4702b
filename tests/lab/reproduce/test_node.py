"""The main table by hand, beside the paper's, and the figure of GReLU's leads over ReLU."""

from __future__ import annotations

import re
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, NODE_DATASETS, node_table, recipe
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render.findings import Observation, in_all
from graphrelu.lab.reproduce import node, shown
from graphrelu.lab.reproduce.table import Row
from tests.lab.fake_engine import lead, make_result

RESULTS = Path(__file__).parents[3] / "results"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return node.TABLE.rows(Record(RESULTS / "node.jsonl").read())


def test_committed_figure_is_that_of_the_record(rows: list[Row], tmp_path: Path) -> None:
    """Where this fails: make readme."""
    png, svg = node.write_leads(rows, tmp_path / "leads")
    assert (png.name, svg.name) == ("leads.png", "leads.svg")
    committed, fresh = (RESULTS / "leads.svg").read_text(), svg.read_text()
    # Another version of the plotting package draws other bytes.
    version = r"Matplotlib v[\d.]+"
    if re.findall(version, committed) == re.findall(version, fresh):
        assert committed == fresh
    alone = [row for row in rows if row.activation == "relu"]
    with pytest.raises(ValueError, match="runs of both GReLU and ReLU"):
        node.write_leads(alone, tmp_path / "leads")


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
    counted = shown.tallies(shown.by_rival(rows, "grelu_over_it")).splitlines()
    assert counted[2] == "| ReLU | 30 | 0 | 0 | 0 | 30 |"
    assert counted[4] == "| ELU | 0 | 0 | 0 | 30 | 0 |"


def test_tallies_by_loss() -> None:
    """A lower loss is better, whatever the accuracy; a run without one does not count."""
    losses = {"relu": 0.7, "grelu": 0.6, "elu": 0.5}
    results = [
        replace(result, test_loss=losses.get(result.config.activation, nan) * (1 + result.seed))
        for result in main_table(12, {"grelu": -1.0, "elu": -1.0})
    ]
    leads = node.loss_leads(node.TABLE.found(results))
    assert {name for _, name in leads} == {"relu", "elu"}
    for (_, name), found in leads.items():
        assert found.outcome == ("better" if name == "relu" else "worse")


def test_protocol_check() -> None:
    # Published for GCN on Cora: ReLU 79.2 ± 1.4, LReLU 79.4 ± 1.6.
    scores = {"relu": 0.806, "lrelu": 0.8101, "grelu": 0.5}
    results = [
        make_result(recipe("cora", "citation", "gcn", name), seed, score)
        for name, score in scores.items()
        for seed in range(2)
    ]
    rows = node.TABLE.rows(results)
    within, others = node.checked(rows)
    assert ([row.name for row in within], [row.name for row in others]) == (["relu"], ["lrelu"])
    assert node.protocol_check(rows).splitlines() == [
        "In 1 of 2 cells of ReLU, LReLU, ELU, PReLU on the citation graphs, our mean lies within "
        "one published standard deviation of the paper's. The others:",
        "",
        "| dataset | backbone | activation | ours | paper | difference |",
        "| --- | --- | --- | ---: | ---: | ---: |",
        "| Cora | GCN | LReLU | 81.0 ± 0.0 (2) | 79.4 ± 1.6 | +1.6 |",
    ]
    assert sum(map(len, node.checked(node.TABLE.rows(main_table(2, {}))))) == 72


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
    return node.observations(node.TABLE.rows(runs))


def test_claims_follow_the_runs() -> None:
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
    ahead, undecided = lead(1), lead(2, 3)
    assert in_all([ahead, lead(2)]) == "holds"
    assert in_all([ahead, undecided]) == "undecided"
    assert in_all([ahead, undecided, lead(-1)]) == "does not hold"
    assert in_all([ahead, lead(0.1, 0.2)]) == "does not hold"  # nothing that matters


def test_a_claim_of_a_size() -> None:
    """The whole interval must say it: +1.0 [0.1, 1.9] is no lead as large as +1.8."""
    assert node.reaches(lead(1.0, 0.9), 1.8) == "undecided"
    assert node.reaches(lead(10, 1), 8.1) == "holds"
    assert node.reaches(lead(4.5, 3.5), 8.1) == "does not hold"
    assert node.reaches(lead(4, 5), 8.1) == "undecided"
    assert node.reaches(lead(9, None), 8.1) == "undecided"
    assert node.reaches(None, 8.1) == "not measured yet"
