"""Every command of README.md and docs/ is run, with a small budget; tables with made-up scores."""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch_geometric.data import Data

from graphrelu.lab.engine import PreparedCells
from scripts.site_links import ROOT
from tests.lab import fake_engine
from tests.lab.fake_engine import invoke

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# What is not at hand without a download, and what stands in for it.
STAND_INS = {
    **dict.fromkeys(("cora", "citeseer", "pyg:Amazon/Photo"), "my_graph.npz"),
    **dict.fromkeys(("mutag", "pyg:TUDataset/ENZYMES", "pyg:ZINC"), "sets:graphs=100,nodes=10"),
}
# Later options count.
BUDGETS = {
    "compare": "--activations relu,grelu --runs 1 --epochs 1 --hidden 32 --layers 1",
    "reproduce": "--quick",
}


def commands(page: Path) -> list[list[str]]:
    blocks = re.findall(r"```(?:bash|sh|shell|console)\n(.*?)```", page.read_text(), re.DOTALL)
    lines = "".join(blocks).splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture
def folder(
    tmp_path: Path, make_npz: Callable[..., Path], ring: Data, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The files that the pages name, and no dataset but the embedded ones."""
    make_npz("my_graph.npz")
    labels = "".join(f"{node},{label},{node}\n" for node, label in enumerate(ring.y.tolist()))
    (tmp_path / "nodes.csv").write_text(f"id,label,size\n{labels}")
    edges = "".join(f"{a},{b}\n" for a, b in ring.edge_index.t().tolist())
    (tmp_path / "edges.csv").write_text(f"source,target\n{edges}")
    smiles = [f"{chain}C1{'C' * size}1" for size in range(2, 12) for chain in ("C", "CO")]
    molecules = "".join(f"{one},{len(one)}\n" for one in smiles)
    (tmp_path / "molecules.csv").write_text(f"smiles,logP\n{molecules}")
    (tmp_path / "results").mkdir()
    for record in ("results/segments.jsonl", "runs.jsonl"):
        shutil.copy(ROOT / "results" / "segments.jsonl", tmp_path / record)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHRELU_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def graphrelu(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if words[0] == "reproduce":
        monkeypatch.setattr(PreparedCells, "train", fake_engine.train)
    else:
        words = [STAND_INS.get(word, word) for word in words]
    words += BUDGETS.get(" ".join(words[:2]), BUDGETS.get(words[0], "")).split()
    done = invoke(*words)
    assert done.exit_code == 0, (words, done.stderr, done.exception)


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda p: p.stem)
def test_commands_of_a_page_run(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extras = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for program, *words in commands(page):
        if program == "graphrelu":
            with monkeypatch.context() as changes:
                graphrelu(words, changes)
        elif program == "pip":
            assert words[0] == "install"
            assert set(re.findall(r"\w+", words[1])) <= set(extras), words
        elif program == "make":
            subprocess.run(["make", "-n", *words], cwd=ROOT, check=True, capture_output=True)
        elif words[0] == "-m":
            subprocess.run([sys.executable, *words, "--help"], check=True, capture_output=True)
        elif "benchmarks/page.py" not in words:  # which test_readme.py runs
            # What takes long: that the script and its options are there.
            assert program in ("python", "torchrun")
            (script,) = (word for word in words if word.endswith(".py"))
            monkeypatch.syspath_prepend((ROOT / script).parent)
            monkeypatch.setattr(sys, "argv", [script, *words[words.index(script) + 1 :], "--help"])
            with pytest.raises(SystemExit, match=r"^0$"):
                runpy.run_path(str(ROOT / script), run_name="__main__")
