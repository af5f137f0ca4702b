"""Where topology matters: the graphs, the rows, the page, and the effect itself."""

from __future__ import annotations

from graphrelu.lab.data import load
from graphrelu.lab.data.generated import BlockModel
from graphrelu.lab.engine import run
from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.reproduce import structure
from graphrelu.lab.stats import compared


def test_cells() -> None:
    assert len(structure.TABLE.wanted()) == 6 * 5 * 5
    seeds = {BlockModel.parse(name).seed for name in structure.PLACES}
    assert len(seeds) == len(structure.PLACES) == 25
    for name, (kind, degree, homophily) in structure.PLACES.items():
        model = BlockModel.parse(name)
        assert (model.name, model.degree, model.homophily) == (name, degree, homophily)
        assert (model.shift == 1, model.opposed == 1) == (kind == "mirrored", kind == "opposed")


def test_topology_matters_where_the_region_must_be_known() -> None:
    """On a graph that the experiment does not have."""
    name = "csbm:homophily=1,shift=1,seed=3"
    scores = {}
    for letter, options in (("A", {}), ("B", {"topology": False})):
        config = recipe(*(name, "other", "gcn", "grelu"), hidden=16, activation_options=options)
        results = run([config], range(6), None, graphs={name: load(name)}, device="cpu")
        scores[letter] = {result.seed: result.score for result in results}
    lead = compared({0: (scores["A"], scores["B"])})[0]
    assert lead.outcome == "better"
    assert lead.difference > 3
