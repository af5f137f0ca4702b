"""What the README and the docstrings show is executed as written."""

import doctest
import importlib
import json
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import graphrelu
from graphrelu.lab.record.results import Record
from graphrelu.lab.render.tables import label, node_rows, protocol_check, tallies
from graphrelu.lab.reproduce import node
from scripts import readme

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


def record(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "benchmarks" / "results" / name).read_text())


def test_readme_speed_is_that_of_the_records() -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    rows = record("activation_cpu.json")["rows"]
    ours, printed = rows["GReLU"], rows["GReLU, straightforward"]
    time = "forward_backward_ms"
    assert f"{ours[time] / rows['Maxout'][time]:.2f} times as long as Maxout" in text
    assert f"took {printed[time] / ours[time]:.0f} times as long" in text
    assert f"{printed['peak_mib'] / ours['peak_mib']:.1f} times the memory" in text
    step = record("cases_h200.json")["milliseconds"]["GCN, 1,000,000 nodes, 10,000,000 edges"]
    added = {name: 100 * (step[name] / step["ReLU"] - 1) for name in ("GReLU", "Maxout")}
    assert f"GReLU added {added['GReLU']:.1f} %" in text
    assert f"Maxout {added['Maxout']:.1f} %" in text
    seconds = record("seeds_cpu.json")["seconds"]
    assert f"{seconds['one_by_one'] / seconds['at_once']:.1f} times less time" in text


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


def test_every_generated_part_is_on_a_page() -> None:
    found = {
        name for page in readme.PAGES for name in re.findall(r"<!-- (\w+) -->", page.read_text())
    }
    assert found == set(readme.BLOCKS)


def test_refreshing_replaces_what_is_stale() -> None:
    text = "before\n<!-- seeds -->\n999 seeds\n<!-- /seeds -->\nafter\n"
    fresh = readme.refreshed(text)
    assert "999" not in fresh
    assert readme.seeds() in fresh
    assert fresh.startswith("before\n")
    assert fresh.endswith("\nafter\n")
    with pytest.raises(KeyError, match="unknown"):
        readme.refreshed("<!-- unknown -->\n<!-- /unknown -->")


def test_tables_are_those_of_the_record(tmp_path: Path) -> None:
    """results/node.md and the README's tallies are made from results/node.jsonl."""
    source = ROOT / "results" / "node.jsonl"
    for made in node.render(Path(shutil.copy(source, tmp_path))):
        assert made.read_text() == (ROOT / "results" / made.name).read_text()
    text = (ROOT / "README.md").read_text()
    shown = re.search(r"<!-- tallies -->\n(.*)<!-- /tallies -->", text, re.DOTALL).group(1)
    counts = [tuple(re.findall(r"\| (\w+) \| (\d+) \| (\d+) \| (\d+) \|", shown))]
    results = Record(source).read()
    expected = [
        (label(tally.rival), str(tally.won), str(tally.tied), str(tally.lost))
        for tally in tallies(results)
    ]
    assert counts == [tuple(expected)]


def test_prose_about_the_main_table_is_that_of_the_record() -> None:
    pitch, docs = (
        " ".join((ROOT / name).read_text().split()) for name in ("README.md", "docs/laboratory.md")
    )
    results = Record(ROOT / "results" / "node.jsonl").read()
    rows = node_rows(results)
    social = [row for row in rows if row.dataset in ("blogcatalog", "flickr")]
    (on_social,) = {row.n for row in social if row.over_relu}
    (on_citation,) = {row.n for row in rows if row.over_relu and row not in social}
    assert f"over {on_citation} seeds on citation graphs and {on_social} on social ones" in pitch
    assert min(row.n for row in social) >= on_social
    leads = [
        (f"{label(r.dataset)}-{label(r.backbone)}", r.over_relu) for r in social if r.over_relu
    ]
    above = ", ".join(name for name, lead in leads if lead.low > 0) or "no cell"
    below = ", ".join(name for name, lead in leads if lead.high < 0) or "no cell"
    assert f"above zero in {above}, and below zero in {below}." in pitch

    check = protocol_check(results)
    assert f"{len(check.within)} of {len(check.within) + len(check.others)}" in docs
    higher = [
        row.difference
        for row in social
        if row.activation == "relu" and row.backbone != "gcn" and row.difference is not None
    ]
    assert f"by {min(higher):.0f} to {max(higher):.0f} points" in docs


def test_paper_map_names_what_exists() -> None:
    text = (ROOT / "docs" / "paper_map.md").read_text()
    for module, name in re.findall(r"`(functional|diffusion|ops\.\w+)\.(?!py`)(\w+)`", text):
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


@pytest.mark.parametrize(
    "module", [info.name for info in pkgutil.walk_packages(graphrelu.__path__, "graphrelu.")]
)
def test_docstring_examples(module: str) -> None:
    if module.endswith("__main__"):
        return
    failed, _ = doctest.testmod(importlib.import_module(module))
    assert failed == 0
