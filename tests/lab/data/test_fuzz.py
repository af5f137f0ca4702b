"""Mutated files: a whole graph comes out, or one sentence; and nothing that a file holds is run."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphrelu.lab.data import DataError, load

FILES = 100
NODE = np.arange(12)


def npz() -> bytes:
    stream = io.BytesIO()
    edges = np.stack([NODE, (NODE + 1) % 12], axis=1)
    np.savez(stream, node_features=np.eye(12, 3), node_labels=NODE % 2, edges=edges)
    return stream.getvalue()


def pt() -> bytes:
    stream = io.BytesIO()
    edges = torch.from_numpy(np.stack([NODE, (NODE + 1) % 12]))
    y = torch.from_numpy(NODE % 2)
    torch.save(Data(x=torch.rand(12, 3).to_sparse(), edge_index=edges, y=y), stream)
    return stream.getvalue()


def tables() -> bytes:
    """That of the nodes, an empty line, and that of the edges."""
    nodes = "".join(f"{n},{n % 2},{n / 2},{n % 3 // 2}\n" for n in NODE)
    edges = "".join(f"{n},{(n + 1) % 12}\n" for n in NODE)
    return f"id,label,f,train\n{nodes}\n{edges}".encode()


def changed(content: bytes, chance: random.Random) -> bytes:
    """With a few bytes replaced; of an archive, those inside an entry."""
    if content[:2] != b"PK" or chance.random() < 0.2:
        flipped = bytearray(content)
        for _ in range(chance.choice((1, 1, 4))):
            flipped[chance.randrange(len(flipped))] = chance.choice(b"\x00\xff01,-\n")
        return bytes(flipped)
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w") as new:
        # Headers and pickles are the first of what an archive has.
        at = min(chance.randrange(len(old.namelist())) for _ in range(2))
        for place, name in enumerate(old.namelist()):
            part = bytearray(old.read(name))
            if place == at and part:
                part[min(chance.randrange(len(part)) for _ in range(2))] = chance.randrange(256)
            new.writestr(name, bytes(part))
    return stream.getvalue()


def read(path: Path) -> None:
    if path.suffix == ".txt":
        nodes, _, edges = path.read_bytes().partition(b"\n\n")
        path = path.with_suffix("")
        path.mkdir(exist_ok=True)
        (path / "nodes.csv").write_bytes(nodes)
        (path / "edges.csv").write_bytes(edges)
    try:
        graph = load(str(path))
    except DataError as error:
        text = str(error)
    else:
        text = "Read."
        assert 0 <= int(graph.edge_index.min()) <= int(graph.edge_index.max()) < graph.num_nodes
    assert text.endswith(".")
    assert "\n" not in text


KINDS = {".npz": npz, ".pt": pt, ".txt": tables}


@pytest.mark.parametrize("ending", KINDS)
def test_mutated_files(ending: str, tmp_path: Path) -> None:
    content, chance, path = KINDS[ending](), random.Random(7), tmp_path / f"file{ending}"
    for _ in range(FILES):
        path.write_bytes(changed(content, chance))
        read(path)
