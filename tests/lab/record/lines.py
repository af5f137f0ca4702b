"""Lines of records as the project's own code writes them, and values that are no field of them."""

from __future__ import annotations

import json
from typing import Any

from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.record.results import together
from tests.lab.fake_engine import make_result

Entry = dict[str, Any]

ODD: tuple[Any, ...] = (None, True, 0, -1, 1, 2, 10**19, 10**400, 0.5, -0.0, 1e300, 1e-300, "", "x")
ODD += ("é\ud800", "<script>", [], [[]], {}, {"a": 1}, [1, 2], [None], [1e308, -1e308], "cora")
ODD += ("relu", "grelu", "folds", "gin_folds", "rocauc", {"layers": 3}, {"K": 4}, {"K": 8})


def runs() -> list[Entry]:
    configs = [recipe("cora", "citation", "gcn", name) for name in ("relu", "grelu")]
    results = [make_result(config, seed, 0.5) for config in configs for seed in range(2)]
    return _plain({"event": "finished"} | e for result in results for e in together([result]))


def written(entries: list[Entry]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def _plain(entries: Any) -> list[Entry]:
    found: list[Entry] = json.loads(json.dumps(list(entries)))
    return found
