"""The ablation and the effect of K: cells of the main table, and GReLU's variants."""

from __future__ import annotations

from graphrelu.grelu import VARIANTS
from graphrelu.lab.models.backbones import GNN
from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.reproduce import ablation, segments
from graphrelu.lab.reproduce.ablation import PRINTED
from tests.helpers import variant_of


def test_the_rows_are_the_papers() -> None:
    cells = {name: config for (_, name), config in ablation.cells("flickr").items()}
    assert len({config.key() for config in cells.values()}) == len(cells) == 11
    assert cells["GReLU-A"] == recipe("flickr", "gcn", "grelu")
    assert cells["ReLU"] == recipe("flickr", "gcn", "relu")
    for letter in VARIANTS:
        config = cells[f"GReLU-{letter}"]
        options = dict(config.activation_options)
        options.pop("gamma_max", None)  # on record; a constant of the library
        model = GNN("gcn", 5, config.hidden, 3, config.activation, activation_options=options)
        expected = variant_of(letter, config.hidden, dropout=0.2)  # as labels are few
        assert str(model.acts[0]) == str(expected)
        for name in ("K", "topology", "bias", "node_wise", "channel_wise", "mode"):
            assert getattr(model.acts[0], name) == getattr(expected, name), letter
    assert dict(cells[PRINTED].activation_options) == {"mode": "paper"}
    assert (cells["SGC"].backbone, cells["SGC"].activation) == ("sgc", "none")


def test_two_segments_are_the_main_tables() -> None:
    for dataset in segments.TABLE.datasets:
        first, *others = segments.cells(dataset).values()
        assert first == recipe(dataset, "gcn", "grelu")
        assert [dict(cell.told_options) for cell in others] == [{"K": K} for K in (3, 4, 5, 6, 7)]
