"""The table of deep networks."""

from __future__ import annotations

from dataclasses import replace

from graphrelu.lab.record.results import Result
from graphrelu.lab.reproduce import deep
from tests.lab.fake_engine import make_result


def runs() -> list[Result]:
    """Two cells, of a tuning graph and of a held-out one."""
    points = {"ReLU": 0.0, "GELU": 0.1, "GReLU-B": 1.0, "GReLU": 3.0}
    wanted = deep.TABLE.wanted()
    return [
        make_result(wanted[deep.Cell(*cell, 4), name], seed, 0.5 + (lead + seed % 3 / 100) / 100)
        for cell in (("squirrel", "gcn"), ("actor", "gat"))
        for name, lead in points.items()
        for seed in range(10)
    ]


def test_cells_have_the_same_settings_for_all() -> None:
    cells = deep.TABLE.wanted()
    assert len(cells) == len(set(cells.values())) == 31 * 6
    for cell in {cell for cell, _ in cells}:
        own = [config for (of, _), config in cells.items() if of == cell]
        assert len({replace(c, activation="any", activation_options=()) for c in own}) == 1
    assert all(deep.TABLE.place(config) == place for place, config in cells.items())
    config = next(iter(cells.values()))
    other = replace(config, activation="grelu", activation_options=(("scale", 5.0),))
    for stranger in (other, replace(config, activation="elu")):
        assert deep.TABLE.place(stranger) is None
