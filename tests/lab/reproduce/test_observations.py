"""The paper's observations: each line follows the records."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from graphrelu.lab.record.recipes import GRAPH_BACKBONES, GRAPH_DATASETS, graph_cell, node_table
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render.findings import Observation
from graphrelu.lab.reproduce import graph, observations, runtime
from tests.lab.fake_engine import invoke, lead, make_result
from tests.lab.reproduce.test_runtime import entry

RESULTS = Path(__file__).parents[3] / "results"


def test_the_page_is_that_of_the_records(tmp_path: Path) -> None:
    """Where this fails: graphrelu observations."""
    for name in observations.RECORDS:
        if (RESULTS / f"{name}.jsonl").exists():
            shutil.copy(RESULTS / f"{name}.jsonl", tmp_path)
    (page,) = observations.render(tmp_path)
    assert page.read_text() == (RESULTS / "observations.md").read_text()


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


def test_main_table() -> None:
    ahead = {(backbone, "grelu"): 10.0 for backbone in ("gcn", "gat", "arma")}
    best, blogcatalog, flickr, gat = observations.of_main_table(node_runs(ahead))
    assert (best.outcome, best.paper) == ("holds", "the highest mean in 28 of 28 cells")
    assert best.ours == (
        "better in 30 of 30 comparisons, worse in 0, no difference in 0; leads from +10.7 to +10.7 "
        "points, over 14 seeds; the highest mean in 6 of 6 cells"
    )
    assert (blogcatalog.paper, blogcatalog.outcome) == ("+13.2 points", "does not hold")
    assert (flickr.paper, flickr.outcome) == ("+8.1 points", "holds")
    assert (gat.outcome, gat.paper) == ("holds", "higher in 21 of 25 comparisons")

    elsewhere = observations.of_main_table(node_runs(ahead | {("gat", "elu"): 11.0}))
    assert [o.outcome for o in elsewhere] == ["does not hold"] * 2 + ["holds", "does not hold"]
    equal = observations.of_main_table(node_runs({}))
    assert [o.outcome for o in equal] == ["does not hold"] * 4
    assert {o.outcome for o in observations.of_main_table([])} == {"not measured yet"}


def test_a_claim_of_a_size() -> None:
    """The whole interval must say it: +1.0 [0.1, 1.9] is no lead as large as +1.8."""
    assert observations.reaches(lead(1.0, 0.9), 1.8) == "undecided"
    assert observations.reaches(lead(10, 1), 8.1) == "holds"
    assert observations.reaches(lead(4.5, 3.5), 8.1) == "does not hold"
    assert observations.reaches(lead(4, 5), 8.1) == "undecided"
    assert observations.reaches(lead(9, None), 8.1) == "undecided"
    assert observations.reaches(None, 8.1) == "not measured yet"


def timing(backbone: str, activation: str, *repeats: float, mode: str = "one") -> dict[str, Any]:
    seconds = sorted(repeats)[len(repeats) // 2]
    changes = {"backbone": backbone, "repeats": list(repeats), "mode": mode}
    return entry(activation, seconds, device="a machine", **changes)


def test_runtime() -> None:
    def found(**changes: dict[str, Any]) -> list[Observation]:
        timings = {
            "relu": timing("gcn", "relu", 1.0, 1.1, 1.2),
            "grelu": timing("gcn", "grelu", 1.3, 1.32, 1.4),
            "maxout": timing("gcn", "maxout", 2.0, 2.2, 2.1),
            "gat_relu": timing("gat", "relu", 2.0, 2.0, 2.1),
            "gat_grelu": timing("gat", "grelu", 2.2, 2.4, 2.5),
            "gat_maxout": timing("gat", "maxout", 3.0, 3.0, 3.0),
        }
        return runtime.observations(runtime.rows_of(list((timings | changes).values())))

    (all_fit,) = found()
    assert all_fit.outcome == "holds"
    assert all_fit.claim.endswith("than Maxout (CiteSeer, a machine, one run at a time)")
    assert all_fit.ours == (
        "1.20 times ReLU's time, slower with 2 of 2 backbones; "
        "0.63 to 0.80 times Maxout's, faster with 2"
    )
    overlapping = timing("gat", "maxout", 2.5, 2.6, 2.7)
    assert found(gat_maxout=overlapping)[0].outcome == "undecided"
    faster = timing("gcn", "maxout", 1.0, 1.0, 1.1)
    (refuted,) = found(gat_maxout=overlapping, maxout=faster)
    assert (refuted.outcome, refuted.ours[-13:]) == ("does not hold", "faster with 0")
    alone = timing("gcn", "grelu", 1.0, mode="batched")
    assert len(found(other=alone)) == 1
    assert runtime.observations(runtime.rows_of([alone]))[0].outcome == "not measured yet"


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


def test_command(tmp_path: Path) -> None:
    result = invoke("observations", "--results", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"{tmp_path} has none of the records node.jsonl, ablation.jsonl, segments.jsonl, "
        "runtime.jsonl, graph.jsonl.\n"
    )
    lines = [timing("gcn", name, 1.0 + i) for i, name in enumerate(("relu", "grelu", "maxout"))]
    runtime.record_of(tmp_path / "runtime.jsonl").append(lines)
    with (tmp_path / "runtime.jsonl").open("a") as file:
        file.write('{"event": "timed", "torn')
    runs = node_runs({("arma", "grelu"): 9.0})
    Record(tmp_path / "node.jsonl").append(r for r in runs if r.config.backbone == "arma")
    result = invoke("observations", "--results", tmp_path)
    assert (result.exit_code, result.stderr) == (0, "")
    page = (tmp_path / "observations.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("| GReLU is slower")]
    assert len(lines) == 1
    assert "**holds** | 2.00 times ReLU's time" in lines[0]
    assert page.count("**not measured yet**") == 1 + 11 + 3 + 1
    assert max(map(len, result.stdout.replace(str(tmp_path), "").splitlines())) <= 100
