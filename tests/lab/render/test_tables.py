"""Rows by hand, beside the paper's, and the files made of them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from math import nan
from typing import Any

import pytest

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, NODE_DATASETS, node_table, recipe
from graphrelu.lab.record.results import Result
from graphrelu.lab.render import export, tables, terminal
from graphrelu.lab.render.verdict import verdict
from graphrelu.lab.reproduce import node
from tests.lab.fake_engine import make_result
from tests.lab.pages import judged

RELU = [0.80, 0.81, 0.82, 0.83, 0.84, 0.85]


def cell(activation: str, scores: Sequence[float], dataset: str = "cora") -> list[Result]:
    config = recipe(dataset, "citation", "gcn", activation)
    return [make_result(config, seed, score) for seed, score in enumerate(scores)]


def rows(results: list[Result], **options: Any) -> list[tables.CompareRow]:
    """The rows of a comparison, with the decisions on them."""
    is_error = results[0].config.metric == "mae"
    found = judged(results, is_error=is_error, **options)
    return tables.compare_rows(results, found.decisions)


def test_compare_rows_by_hand() -> None:
    # Ahead by 1.0, 1.1, ..., 1.5 points: mean 1.25, std 0.187083.
    grelu = [score + 0.010 + 0.001 * i for i, score in enumerate(RELU)]
    elu = [score + 0.001 * (i + 1) * (-1) ** i for i, score in enumerate(RELU)]
    results = cell("relu", RELU) + cell("elu", elu) + cell("grelu", grelu)
    relu_row, elu_row, grelu_row = rows(results, margin=1.0, looks=(2, 3))
    assert [row.activation for row in (relu_row, elu_row, grelu_row)] == ["relu", "elu", "grelu"]
    assert (relu_row.mean, relu_row.best, relu_row.n) == (pytest.approx(82.5), 85.0, 6)
    assert relu_row.std == pytest.approx(1.870829)
    assert relu_row.over_relu is None
    found = grelu_row.over_relu
    assert found.difference == pytest.approx(1.25)
    assert found.std == pytest.approx(0.187083, abs=1e-6)
    assert (found.n, found.margin, found.look) == (6, 1.0, 2)
    assert elu_row.over_relu.difference == pytest.approx(-0.05)
    assert elu_row.over_relu.look == 3


def test_the_price() -> None:
    """Seconds and memory are a run's share of its batch; what a record lacks is not shown."""
    first, second = cell("relu", RELU[:2])  # 0.25 seconds each
    known = [
        replace(first, epochs_run=10, test_loss=0.6, peak_memory=2_000_000),
        replace(second, calibration_error=0.07, peak_memory=4_000_000),
    ]
    found = tables.price(known)
    assert (found.test_loss, found.calibration_error) == (pytest.approx(0.65), pytest.approx(6))
    assert found.seconds_per_epoch == pytest.approx(0.25 / 25)
    assert (found.parameters, found.peak_memory) == (1_000, 3_000_000)
    (shown,) = tables.compare_cells(tables.compare_rows(known))
    assert shown == {
        "activation": "ReLU",
        "mean": "80.5",
        "std": "0.7",
        "runs": "2",
        "test loss": "0.650",
        "ECE": "6.0",
        "s per epoch": "0.010",
        "parameters": "1,000",
        "MB per run": "3",
    }
    older = [
        replace(first, calibration_error=nan, parameters=None, epochs_computed=None),
        second,
    ]
    (shown,) = tables.compare_cells(tables.compare_rows(older))
    assert list(shown) == ["activation", "mean", "std", "runs", "test loss"]


def errors(activation: str, values: Sequence[float]) -> list[Result]:
    """Runs with these mean absolute errors, which are negative on record."""
    config = replace(recipe("cora", "citation", "gcn", activation), metric="mae")
    return [make_result(config, seed, -value) for seed, value in enumerate(values)]


@pytest.mark.parametrize("unit", [1e-13, 1.0, 1e6])
def test_a_lower_error_is_better(unit: float) -> None:
    """Errors as they are, their differences in percent of ReLU's, and the lowest is the best."""
    relu = [unit * (2.0 + 0.1 * seed) for seed in range(8)]
    grelu = [value - unit * (0.5 + 0.01 * seed) for seed, value in enumerate(relu)]
    relu_row, grelu_row = both = rows(errors("relu", relu) + errors("grelu", grelu))
    assert relu_row.is_error
    assert (relu_row.mean, relu_row.best) == (pytest.approx(2.35 * unit), relu[0])
    lead = grelu_row.over_relu
    assert (lead.outcome, lead.unit) == ("better", "% of ReLU's error")
    assert lead.difference == pytest.approx(100 * 0.535 / 2.35)
    assert tables.compare_cells(both)[1]["mean"] == f"{1.815 * unit:.4g}"
    best = terminal.compare_table(both).renderables[0].columns[1]
    assert [cell.style for cell in best.cells] == ["", "bold"]
    assert verdict(both).sentence == (
        f"GReLU is better than ReLU here ({tables.amount(lead)} % of ReLU's error over 8 seeds)."
    )
    others = errors("relu", relu) + errors("grelu", relu) + errors("elu", grelu)
    assert "The lowest mean is that of ELU (+22.8 " in verdict(rows(others)).sentence


def test_pairs_are_of_the_same_seed() -> None:
    relu, grelu = cell("relu", RELU), cell("grelu", [0.9] * 6)
    _, found = rows(relu + grelu[::-1][:2])
    assert found.over_relu.n == 2
    assert found.over_relu.difference == pytest.approx(5.5)
    _, apart = rows(relu[:3] + grelu[3:])
    assert apart.over_relu is None


def test_different_settings_are_not_compared() -> None:
    other = [replace(r, config=replace(r.config, lr=0.5)) for r in cell("grelu", RELU)]
    with pytest.raises(ValueError, match=r"^The runs of cora with gcn have different settings\.$"):
        tables.compare_rows(cell("relu", RELU) + other)
    options = [
        replace(r, config=replace(r.config, activation_options=(("K", 3),)), seed=r.seed + 6)
        for r in cell("grelu", RELU)
    ]
    assert len(tables.compare_rows(cell("relu", RELU) + options)) == 2
    with pytest.raises(ValueError, match="different settings"):
        tables.compare_rows(cell("grelu", RELU) + options)
    with pytest.raises(ValueError, match=r"one graph and one backbone, not of 2\.$"):
        tables.compare_rows(cell("relu", RELU) + cell("relu", RELU, "pubmed"))


def main_table(n: int, leads: dict[str, float]) -> list[Result]:
    """Every cell of the main table: the same ReLU scores, the others ahead by so many points."""

    def score(config: Config, seed: int) -> float:
        ahead = leads.get(config.activation, 0.0) * (1 + 0.01 * seed)
        return 0.79 + 0.001 * (seed % 4) + ahead / 100

    cells = reversed(node_table())
    return [make_result(c, seed, score(c, seed)) for c in cells for seed in range(n)]


def test_node_rows_beside_the_paper() -> None:
    results = main_table(12, {"grelu": 1.0, "elu": 3.0})
    rows = tables.node_rows(results)
    names = [(row.dataset, row.backbone, row.activation) for row in rows]
    assert names == [(d, b, a) for d in NODE_DATASETS for b in BACKBONES for a in ACTIVATIONS]
    by_name = dict(zip(names, rows, strict=True))
    relu = by_name["cora", "gcn", "relu"]
    assert (relu.mean, relu.n) == (pytest.approx(79.15), 12)
    assert (relu.paper_mean, relu.paper_std) == (79.2, 1.4)
    assert relu.difference == pytest.approx(-0.05)
    assert relu.over_relu is None
    absent = by_name["flickr", "cheb", "relu"]
    assert (absent.paper_mean, absent.paper_std, absent.difference) == (None, None, None)
    grelu = by_name["cora", "gcn", "grelu"].over_relu
    assert grelu.difference == pytest.approx(1.055)
    leads = [row.over_relu for row in rows if row.over_relu is not None]
    assert min(lead.error for lead in leads) == pytest.approx(0.05 / 30)  # of thirty cells
    assert (grelu.outcome, grelu.about) == ("better", "over random splits of this data")
    assert tables.caution(rows) == ""

    counts = {tally.rival: tally for tally in tables.tallies(results)}
    assert list(counts) == ["relu", "lrelu", "elu", "prelu", "maxout"]
    assert counts["relu"] == tables.Tally("relu", 30, 0, 0, 0, 30)
    assert counts["elu"] == tables.Tally("elu", 0, 0, 0, 30, 0)


def test_tallies_by_loss() -> None:
    """A lower loss wins, whatever the accuracy; a run without one does not count."""
    losses = {"relu": 0.7, "grelu": 0.6, "elu": 0.5}
    results = [
        replace(result, test_loss=losses.get(result.config.activation, nan) * (1 + result.seed))
        for result in main_table(12, {"grelu": -1.0, "elu": -1.0})
    ]
    assert tables.loss_tallies(results) == [
        tables.Tally("relu", 30, 0, 0, 0, 30),
        tables.Tally("elu", 0, 0, 0, 30, 0),
    ]


def test_against_the_best() -> None:
    results = main_table(12, {"grelu": 1.0, "elu": 2.0})
    ahead_on_cora = [
        replace(result, score=result.score - 0.03 * (result.config.activation == "elu"))
        if result.config.dataset == "cora"
        else result
        for result in results
        if result.config.dataset in ("cora", "flickr") and result.config.backbone == "gcn"
    ]
    assert tables.against_best(ahead_on_cora).endswith(
        "has it itself in 1 of 2 cells, is not told apart from it in 0, and is worse "
        "in 1 (Flickr-GCN)."
    )
    alike = [r for r in results if r.config.activation in ("relu", "grelu")]
    assert tables.against_best(alike).endswith("in 0, and is worse in 0.")


def test_four_seeds_decide_nothing() -> None:
    results = main_table(4, {"grelu": 1.0})
    assert tables.tallies(results)[0] == tables.Tally("relu", 0, 0, 30, 0, 30)
    assert tables.caution(tables.node_rows(results)) == (
        "Nothing in this table is decided: that takes 5 seeds or more."
    )


def test_protocol_check() -> None:
    # Published for GCN on Cora: ReLU 79.2 ± 1.4, LReLU 79.4 ± 1.6.
    results = cell("relu", [0.806] * 2) + cell("lrelu", [0.8101] * 2) + cell("grelu", [0.5] * 2)
    check = tables.protocol_check(results)
    assert [row.activation for row in check.within] == ["relu"]
    assert [row.activation for row in check.others] == ["lrelu"]
    assert check.sentence == (
        "In 1 of 2 cells of ReLU, LReLU, ELU, PReLU on the citation graphs, our mean lies within "
        "one published standard deviation of the paper's."
    )
    assert node.protocol_to_markdown(check).splitlines()[2:] == [
        "| dataset | backbone | activation | ours | paper | difference |",
        "| --- | --- | --- | ---: | ---: | ---: |",
        "| Cora | GCN | LReLU | 81.0 ± 0.0 (2) | 79.4 ± 1.6 | +1.6 |",
    ]
    everything = tables.protocol_check(main_table(2, {}))
    assert len(everything.within) + len(everything.others) == 72


def test_markdown_and_csv() -> None:
    grelu = [score + 0.0102 + 0.001 * i for i, score in enumerate(RELU)]
    rows = tables.node_rows(cell("relu", RELU) + cell("grelu", grelu))
    assert node.to_markdown(rows).splitlines() == [
        "## Cora",
        "",
        "| backbone | activation | ours | paper | difference | GReLU - ReLU | p |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
        "| GCN | ReLU | 82.5 ± 1.9 (6) | 79.2 ± 1.4 | +3.3 |  |  |",
        "| GCN | GReLU | **83.8 ± 2.1 (6)** | 81.8 ± 1.8 | +2.0 | +1.3 [+1.1, +1.5] * | < 0.001 |",
    ]
    relu_line, grelu_line = csv.DictReader(export.to_csv(rows).splitlines())
    assert (relu_line["mean"], relu_line["paper_mean"]) == ("82.5", "79.2")
    assert relu_line["over_relu_p"] == relu_line["over_relu_outcome"] == ""
    assert (grelu_line["over_relu_difference"], grelu_line["over_relu_n"]) == ("1.27", "6")
    assert grelu_line["over_relu_outcome"] == "better"
    assert 0 < float(grelu_line["over_relu_p"]) < 0.001
