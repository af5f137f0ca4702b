"""The library takes nothing with it but torch and PyTorch Geometric."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

OF_THE_LABORATORY = {"matplotlib", "pandas", "ray", "rich", "scipy", "sklearn", "triton", "typer"}
LISTING = """
import json, sys, torch, torch_geometric
before = set(sys.modules)
{statement}
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def newly_imported(statement: str) -> list[str]:
    """The modules that a statement imports beyond those of torch and PyG."""
    command = [sys.executable, "-W", "ignore", "-c", LISTING.format(statement=statement)]
    root = Path(__file__).parents[1]
    return json.loads(subprocess.run(command, capture_output=True, check=True, cwd=root).stdout)


@pytest.mark.parametrize("statement", ["import graphrelu", "from graphrelu.convert import convert"])
def test_library_imports_nothing_of_the_laboratory(statement: str) -> None:
    modules = newly_imported(statement)
    assert "graphrelu.grelu" in modules
    assert not [name for name in modules if name.startswith("graphrelu.lab")]
    assert not OF_THE_LABORATORY & {name.partition(".")[0] for name in modules}


def test_listing_sees_what_is_imported() -> None:
    assert {"graphrelu.lab", "rich"} <= set(newly_imported("import graphrelu.lab.render.terminal"))


def test_laboratory_imports_compare_on_demand() -> None:
    assert "graphrelu.lab.own_model" not in newly_imported("import graphrelu.lab")
    assert "graphrelu.lab.own_model" in newly_imported("from graphrelu.lab import compare")
