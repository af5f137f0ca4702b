"""The library takes nothing with it but torch and PyTorch Geometric."""

import json
import subprocess
import sys

import pytest

import graphrelu
from tests.helpers import ROOT

OF_THE_LABORATORY = {"matplotlib", "pandas", "ray", "rich", "scipy", "sklearn", "triton", "typer"}
LISTING = """
import json, sys, torch, torch_geometric
found, before = [], set(sys.modules)
for statement in sys.argv[1:]:
    exec(statement)
    found.append(sorted(set(sys.modules) - before))
print(json.dumps(found))
"""


def newly_imported(*statements: str) -> list[set[str]]:
    """The modules that are there after each statement, beyond those of torch and PyG."""
    command = [sys.executable, "-W", "ignore", "-c", LISTING, *statements]
    done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
    return list(map(set, json.loads(done.stdout)))


def test_library_imports_nothing_of_the_laboratory() -> None:
    (modules,) = newly_imported("from graphrelu import *")
    assert {"graphrelu.grelu", "graphrelu.hetero", "graphrelu.conversion"} <= modules
    assert not [module for module in modules if module.startswith("graphrelu.lab")]
    assert not OF_THE_LABORATORY & {module.partition(".")[0] for module in modules}


def test_laboratory_imports_compare_on_demand() -> None:
    """It has more than the library: the test above sees what is imported."""
    before, after, terminal = newly_imported(
        "import graphrelu.lab",
        "from graphrelu.lab import compare",
        "import graphrelu.lab.render",
    )
    assert "graphrelu.lab.own_model" in after - before
    assert {"graphrelu.lab", "rich"} <= terminal


def test_all_names_of_the_library() -> None:
    assert {*graphrelu.__all__} <= {*dir(graphrelu)}
    assert all(hasattr(graphrelu, name) for name in graphrelu.__all__)
    with pytest.raises(AttributeError, match="no attribute 'grelus'"):
        graphrelu.grelus  # noqa: B018


def test_command_answers_without_torch() -> None:
    command = """
import sys
from graphrelu.lab import cli
assert cli.run(["--help"]) == cli.run(["--version"]) == 0
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", command], check=True, capture_output=True, cwd=ROOT)
