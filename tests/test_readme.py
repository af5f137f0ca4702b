"""What the README and the docstrings show is executed as written."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import graphrelu

ROOT = Path(__file__).parent.parent


def test_readme_example() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", block], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [re.search(r"print\(.*\)  # (.*)", block).group(1)], (
        done.stderr
    )
    code = [line for line in block.splitlines() if line]
    assert len(code) <= 10


def test_paper_map_names_what_exists() -> None:
    text = (ROOT / "docs" / "paper_map.md").read_text()
    for module, name in re.findall(r"`(functional|kernels|diffusion)\.(?!py`)(\w+)`", text):
        assert hasattr(importlib.import_module(f"graphrelu.{module}"), name), (module, name)
    current = None
    for file, name in re.findall(r"`(test_\w+\.py)?(?:::(test_\w+))?`", text):
        current = file or current
        if not current:
            continue
        source = (ROOT / "tests" / current).read_text()
        if name:
            assert f"def {name}(" in source, (current, name)


@pytest.mark.parametrize(
    "module", [info.name for info in pkgutil.walk_packages(graphrelu.__path__, "graphrelu.")]
)
def test_docstring_examples(module: str) -> None:
    if module.endswith("__main__"):
        return
    failed, _ = doctest.testmod(importlib.import_module(module))
    assert failed == 0
