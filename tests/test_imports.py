"""The library takes nothing with it but torch and PyTorch Geometric."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import graphrelu

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


@pytest.mark.parametrize("name", ["GReLU", "HeteroGReLU", "convert", "graph_context"])
def test_library_imports_nothing_of_the_laboratory(name: str) -> None:
    modules = newly_imported(f"from graphrelu import {name}")
    assert "graphrelu.context" in modules
    assert not [module for module in modules if module.startswith("graphrelu.lab")]
    assert not OF_THE_LABORATORY & {module.partition(".")[0] for module in modules}


def test_all_names_of_the_library() -> None:
    assert {*graphrelu.__all__} <= {*dir(graphrelu)}
    assert all(hasattr(graphrelu, name) for name in graphrelu.__all__)
    with pytest.raises(AttributeError, match="no attribute 'grelus'"):
        graphrelu.grelus  # noqa: B018


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_command_answers_without_torch(option: str) -> None:
    command = f"""
import sys
from graphrelu.lab import cli
assert cli.run(["{option}"]) == 0
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", command], check=True, capture_output=True)


def test_listing_sees_what_is_imported() -> None:
    assert {"graphrelu.lab", "rich"} <= set(newly_imported("import graphrelu.lab.render.terminal"))


def test_laboratory_imports_compare_on_demand() -> None:
    assert "graphrelu.lab.own_model" not in newly_imported("import graphrelu.lab")
    assert "graphrelu.lab.own_model" in newly_imported("from graphrelu.lab import compare")
