"""Small graphs, and the paper's datasets where the environment says where they are."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # importing PyG calls what newer versions of torch deprecate
    from torch_geometric.data import Data

    torch.eye(1).to_sparse_csr()  # torch announces once per process that CSR is in beta
    from tests.lab import fake_engine


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, in which a comparison without a record is kept."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, without datasets, network or training: scores are a formula."""
    return fake_engine.only_fakes(tmp_path, monkeypatch)


@pytest.fixture
def real_root() -> Path:
    """The folder that holds the paper's datasets."""
    root = os.environ.get("GRAPHRELU_DATA")
    if not root:
        pytest.skip("GRAPHRELU_DATA does not say where the datasets are")
    return Path(root)


@pytest.fixture
def ring() -> Data:
    """Twelve nodes in a ring, two classes of six."""
    row = torch.arange(12)
    edges = torch.stack([row, (row + 1) % 12])
    return Data(
        x=torch.arange(36.0).view(12, 3),
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
        y=row % 2,
    )


@pytest.fixture
def make_npz(tmp_path: Path) -> Callable[..., Path]:
    """Writes a ring of twelve nodes; arrays can be replaced or dropped.

    Every node points to the next one and to itself, so reading has to add and remove edges.
    Features: node n has the value n + 1 in column n % 3.
    """

    def write(name: str = "ring.npz", drop: tuple[str, ...] = (), **replace: object) -> Path:
        node = np.arange(12)
        arrays: dict[str, object] = {
            "x": (node[:, None] + 1.0) * (node[:, None] % 3 == np.arange(3)),
            "edge_index": np.stack([node.repeat(2), np.stack([node, (node + 1) % 12], 1).ravel()]),
            "y": node % 2,
        }
        arrays |= replace
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **{key: value for key, value in arrays.items() if key not in drop})
        return path

    return write


@pytest.fixture
def tree() -> Callable[[Path], dict[str, tuple[int, int]]]:
    """Lists every path below a folder with its size and time of change."""

    def listing(folder: Path) -> dict[str, tuple[int, int]]:
        stats = {str(path.relative_to(folder)): path.stat() for path in folder.rglob("*")}
        return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}

    return listing


@pytest.fixture
def own_signals() -> Iterator[None]:
    """As in a process of its own: Ray, once it ran in this one, would end it at a SIGTERM."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)
