"""The modules hang together as scripts/house.py draws them."""

from pathlib import Path

from scripts import house


def test_no_import_goes_up_or_in_a_circle() -> None:
    graph = house.imports(house.modules())
    assert house.upward(graph) == []
    assert house.circles(graph) == []


def test_it_notices_both(tmp_path: Path) -> None:
    files = {
        "graphrelu/__init__.py": "",
        "graphrelu/grelu.py": "def f() -> None:\n    import graphrelu.lab.data.graph\n",
        "graphrelu/ops/__init__.py": "",
        "graphrelu/ops/apply.py": "from graphrelu.ops import weigh\n",
        "graphrelu/ops/weigh.py": "if TYPE_CHECKING:\n    from graphrelu.ops.apply import x\n",
        "graphrelu/lab/__init__.py": "",
        "graphrelu/lab/data/__init__.py": "",
        "graphrelu/lab/data/graph.py": "from graphrelu.grelu import f\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = house.imports(house.modules(tmp_path))
    assert house.upward(graph) == ["graphrelu.grelu imports graphrelu.lab.data.graph"]
    assert house.circles(graph) == [
        "graphrelu.grelu -> graphrelu.lab.data.graph -> graphrelu.grelu",
        "graphrelu.ops.apply -> graphrelu.ops.weigh -> graphrelu.ops.apply",
    ]
