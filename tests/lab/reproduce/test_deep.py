"""The table of deep networks."""

from __future__ import annotations

from dataclasses import replace

from graphrelu.lab.record.results import Result
from graphrelu.lab.reproduce import deep
from tests.lab.fake_engine import make_result


def runs() -> list[Result]:
    """Two cells, of a tuning graph and of a held-out one."""
    points = {"ReLU": 0.0, "GELU": 0.1, "GReLU-B": 1.0, "GReLU": 3.0}
    return [
        make_result(cell.config(*deep.ACTIVATIONS[name]), seed, 0.5 + (lead + seed % 3 / 100) / 100)
        for cell in (deep.Cell("squirrel", "gcn", 4), deep.Cell("actor", "gat", 4))
        for name, lead in points.items()
        for seed in range(10)
    ]


def test_cells_have_the_same_settings_for_all() -> None:
    cells = deep.TABLE.wanted()
    assert len(cells) == len(set(cells.values())) == 31 * 6
    same = {"activation": "any", "activation_options": ()}
    for cell in {cell for cell, _ in cells}:
        own = [config for (of, _), config in cells.items() if of == cell]
        assert len({replace(config, **same) for config in own}) == 1
    assert {place: deep.TABLE.place(config) for place, config in cells.items()} == {
        place: place for place in cells
    }
    first = next(iter(cells))[0]
    assert deep.TABLE.place(first.config("grelu", {"scale": 5.0})) is None
    assert deep.TABLE.place(first.config("elu", {})) is None
