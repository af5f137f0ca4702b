"""The paper's datasets themselves; skipped where they are not on disk."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.datasets import AttributedGraphDataset, Planetoid

from graphrelu.lab.data import load, readers, survey
from graphrelu.lab.data.checksums import SOURCES, read_verified

Tree = Callable[[Path], dict[str, tuple[int, int]]]


@pytest.mark.parametrize("name", SOURCES)
def test_counts_layout_and_no_trace(name: str, real_root: Path, tree: Tree) -> None:
    before = tree(real_root)
    graph = load(name, real_root)
    assert tree(real_root) == before
    social = name in ("blogcatalog", "flickr")
    assert graph.family == ("social" if social else "citation")
    assert graph.x.layout == (torch.sparse_csr if social else torch.strided)
    assert graph.x.dtype == torch.float32
    assert graph.edge_index.dtype == graph.y.dtype == torch.int64
    # Both directions of every edge are there.
    key = graph.edge_index[0] * graph.num_nodes + graph.edge_index[1]
    flipped = graph.edge_index[1] * graph.num_nodes + graph.edge_index[0]
    assert torch.equal(key.sort().values, flipped.sort().values)
    assert (graph.train_mask is None) == social


def test_survey_finds_all(real_root: Path) -> None:
    for status in survey(real_root):
        assert (status.state, status.missing, status.altered) == ("present", (), ())


@pytest.mark.parametrize(
    ("dataset", "name"), [(Planetoid, "Cora"), (AttributedGraphDataset, "Flickr")]
)
def test_graphs_are_pygs(dataset: Any, name: str, real_root: Path, tmp_path: Path) -> None:
    source = SOURCES[name.lower()]
    raw = Path(Path(source.folder).name, "raw")
    shutil.copytree(real_root / source.folder / "raw", tmp_path / raw)
    expected, graph = dataset(str(tmp_path), name)[0], load(name, real_root)
    for key in set(expected.keys()) - {"x"}:
        assert torch.equal(getattr(graph, key), expected[key]), key
    assert torch.equal(graph.x.to_dense(), expected.x.to_dense())


def test_planetoid_without_scipy(real_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOURCES["citeseer"]
    files = read_verified(real_root / source.folder / "raw", source.sums)
    expected = readers.read_planetoid(files, "CiteSeer")
    real_scipy = sys.modules["scipy.sparse"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = readers.read_planetoid(files, "CiteSeer")
    assert torch.equal(found.x, expected.x)
    assert torch.equal(found.edge_index, expected.edge_index)
    assert sys.modules["scipy.sparse"] is real_scipy


def test_a_bare_machine(real_root: Path, tmp_path: Path) -> None:
    """Every downloaded dataset loads with torch, PyG and numpy alone, and without a warning."""
    program = """
import sys
for name in ("scipy", "sklearn", "pandas"):
    sys.modules[name] = None
import torch_geometric
import warnings
warnings.simplefilter("error")
from graphrelu.lab.data import DataError, load
for name in ("flickr", "cora"):
    load(name)
try:
    load("digits")
except DataError as error:
    print(error)
"""
    env = {"GRAPHRELU_DATA": str(real_root), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", program]
    folder = Path(__file__).parents[3]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=folder)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("digits needs scikit-learn")
