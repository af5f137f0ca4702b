"""What the README and the docstrings show is executed as written."""

import doctest
import importlib
import json
import math
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path
from statistics import fmean, median

import pytest

import graphrelu
from graphrelu.lab.record.results import Record
from graphrelu.lab.render import label
from graphrelu.lab.reproduce import deep, node
from scripts import readme
from tests.helpers import ROOT


def test_readme_example() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", block], capture_output=True, text=True, check=False
    )
    expected = re.findall(r"print\(.*\)  # (.*)", block)
    assert done.stdout.splitlines() == expected != [], done.stderr


def test_the_examples_tell_the_same_run() -> None:
    cells = json.loads((ROOT / "examples" / "tour.ipynb").read_text())["cells"]
    assert readme.run().strip() in "\n".join("".join(cell["source"]) for cell in cells)
    (lead, interval) = re.findall(r"GReLU .* \+(\S+) (\[.*\])", readme.run())[0]
    told = (ROOT / "examples" / "molecules.py").read_text()
    assert f"{lead} % of ReLU's" in told
    assert interval in told


def test_page_of_the_benchmarks_is_that_of_the_records() -> None:
    """Where this fails: python benchmarks/page.py."""
    page = runpy.run_path(str(ROOT / "benchmarks" / "page.py"))["page"]
    assert page() == (ROOT / "benchmarks" / "results" / "README.md").read_text()


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.name)
def test_generated_parts_are_those_of_the_records(page: Path) -> None:
    """Where this fails: make readme."""
    text = page.read_text()
    assert readme.refreshed(text) == text
    assert re.findall(r"<!-- (\w+) -->", text) == re.findall(r"<!-- /(\w+) -->", text)


def test_refreshing_replaces_what_is_stale() -> None:
    found = {
        name for page in readme.PAGES for name in re.findall(r"<!-- (\w+) -->", page.read_text())
    }
    assert found == set(readme.BLOCKS)
    part = "before\n<!-- losses -->\n\n{}\n<!-- /losses -->\nafter\n"
    assert readme.refreshed(part.format("999 cells")) == part.format(readme.losses())
    with pytest.raises(KeyError, match="unknown"):
        readme.refreshed("<!-- unknown -->\n<!-- /unknown -->")


def test_the_study_names_the_tuning_graphs() -> None:
    """A graph with runs in the study's record cannot be held out."""
    studied = {run.config.dataset for run in Record(ROOT / "results" / "study.jsonl").read()}
    assert studied == set(deep.STUDY) <= deep.TUNING_GRAPHS
    assert not deep.TUNING_GRAPHS & deep.EXPLORED
    docs = " ".join((ROOT / "docs" / "results.md").read_text().split())
    named = re.search(r"constants were chosen on (.*?)\. Results on these", docs)[1]
    assert all(label(name) in named for name in deep.TUNING_GRAPHS)


def test_claims_of_the_readme_are_from_held_out_graphs_alone() -> None:
    """No tuning graph is named in what is claimed, and the counts are those of the others."""
    tuning = [label(name) for name in deep.TUNING_GRAPHS]
    for part in (readme.regimes(), readme.advice(), readme.of_the_paper()):
        assert not [name for name in tuning if re.search(rf"\b{name}\b", part)]
    leads = [
        row["over_relu"].difference
        for row in readme.rows("deep")
        if row.activation == "GReLU" and row.dataset not in ("squirrel", "minesweeper", "photo")
    ]
    expected = (
        rf"results/deep\.md.* \| {len(leads)} \|.*\{fmean(leads):+.2f} \| \{median(leads):+.2f} \|"
    )
    assert re.search(expected, readme.regimes())


def test_rates_of_false_findings_are_those_of_the_record() -> None:
    lines = (ROOT / "results" / "simulation.txt").read_text().splitlines()
    recorded = [
        [round(rate, rate < 10) for rate in map(float, re.findall(r"([\d.]+) %", line))]
        for line in lines
    ]
    docs = (ROOT / "docs" / "compare.md").read_text()
    rows = re.findall(r"\| 10, 40(?:, 80)? \|(.*)$", docs, re.MULTILINE)
    columns = [column for row in rows for column in re.findall(r"([\d., ]+) %", row)]
    assert len(columns) == 7
    for column in columns:
        assert [float(rate) for rate in column.split(",")] in recorded


def test_prose_about_the_protocol_is_that_of_the_record() -> None:
    docs = " ".join((ROOT / "docs" / "reproduce.md").read_text().split())
    within, others = node.checked(readme.rows("node"))
    assert f"{len(within)} of {len(within) + len(others)}" in docs
    higher = [
        row["difference"]
        for row in readme.rows("node")
        if row.dataset in readme.SOCIAL
        and row.activation == "relu"
        and row.backbone != "gcn"
        and row["difference"] is not None
    ]
    assert f"by {min(higher):.0f} to {max(higher):.0f} points" in docs


def test_paper_map_names_what_exists() -> None:
    text = (ROOT / "docs" / "paper_map.md").read_text()
    for module, name in re.findall(r"`(functional|graph|ops\.\w+)\.(?!py`)(\w+)`", text):
        assert hasattr(importlib.import_module(f"graphrelu.{module}"), name), (module, name)
    current = None
    for file, name in re.findall(r"`(test_\w+\.py)?(?:::(test_\w+))?`", text):
        current = file or current
        if not current:
            continue
        source = "".join(path.read_text() for path in (ROOT / "tests").rglob(current))
        assert source, current
        if name:
            assert f"def {name}(" in source, (current, name)


def python_modules() -> list[str]:
    """But for what runs at import, and for compiled loops, which are no modules."""
    names = [info.name for info in pkgutil.walk_packages(graphrelu.__path__, "graphrelu.")]
    return [name for name in names if not name.endswith("__main__") and "._native_" not in name]


@pytest.mark.parametrize("module", python_modules())
def test_docstring_examples(module: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(module))
    assert failed == 0


def test_long_run_is_as_the_docs_say() -> None:
    """Memory stays the same from the second step on, and losses are a CPU's."""
    record = json.loads((ROOT / "benchmarks" / "results" / "long_h200.json").read_text())
    gpu, cpu = (dict(record[device]["losses"]) for device in ("cuda", "cpu"))
    assert max(gpu) == 999
    assert all(map(math.isfinite, gpu.values()))
    assert max(abs(gpu[step] / loss - 1) for step, loss in cpu.items()) < 3e-7
    assert len({tuple(used) for _, *used in record["cuda"]["memory"][1:]}) == 1
