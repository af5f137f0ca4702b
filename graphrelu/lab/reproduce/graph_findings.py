"""What the paper observes of graph classification: it gains from GReLU."""

from __future__ import annotations

from collections.abc import Sequence

from graphrelu.lab.record.recipes import GRAPH_BACKBONES, GRAPH_DATASETS
from graphrelu.lab.record.results import Result
from graphrelu.lab.render.graph_table import graph_rows
from graphrelu.lab.render.tables import signed
from graphrelu.lab.reproduce.findings import Observation, in_all, papers_lead, several


def observations(results: Sequence[Result]) -> list[Observation]:
    """GReLU against ReLU by the paper's protocol, each with the configuration chosen for it."""
    rows = graph_rows(result for result in results if result.config.split == "folds")
    leads = [row.over_relu for row in rows if row.over_relu is not None]
    cells = [(dataset, backbone) for dataset in GRAPH_DATASETS for backbone in GRAPH_BACKBONES]
    papers = [papers_lead("graph_classification", *cell) for cell in cells]
    figure = f"{signed(min(papers))} to {signed(max(papers))} points"
    claim = "GReLU is ahead of ReLU in graph classification"
    return [Observation(claim, figure, in_all(leads), several(leads))]
