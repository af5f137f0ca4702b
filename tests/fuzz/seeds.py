"""What the fuzzers start from: small files of each kind, as the project's own code writes them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import numpy as np
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data

from graphrelu.lab.data.graph import Graph, quiet_csr
from graphrelu.lab.engine.train import build
from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.record.results import together
from graphrelu.lab.reproduce import complexity, runtime
from tests.lab.fake_engine import make_result

NODES = 12
PARTS = ("train", "val", "test")
TABLES = {  # of nodes: classes, several labels, values
    "label,id,f": "{a},{n},1\n",
    "label,train,val,test,f": "w{a},{a},0,{b},2e1\n",
    "label_x,f,label_y": "{a},{n},{b}\n",
    "f,label,train_0,val_0,test_0": "-1,{v},{a},{b},0\n",
}
SURROUNDINGS = {"versions": {"torch": "2"}, "commit": None, "date": "2026-11-01T00:00:00+00:00"}


def ring() -> Data:
    """Twelve nodes in a ring, two classes of six."""
    row = torch.arange(NODES)
    edges = torch.stack([row, (row + 1) % NODES])
    edge_index = torch.cat([edges, edges.flip(0)], dim=1)
    return Data(x=torch.rand(NODES, 3), edge_index=edge_index, y=row % 2)


def npz() -> Iterator[bytes]:
    node = np.arange(NODES)
    adjacency = {
        "adj_data": np.ones(NODES, dtype=np.float32),
        "adj_indices": (node + 1) % NODES,
        "adj_indptr": np.arange(NODES + 1),
        "adj_shape": np.array([NODES, NODES]),
        "labels": node % 2,
    }
    sparse = {
        "attr_data": node + 1.0,
        "attr_indices": (node % 3).astype(np.int32),
        "attr_indptr": np.arange(NODES + 1, dtype=np.uint32),
        "attr_shape": np.array([NODES, 3]),
    }
    dense = {"attr_matrix": np.ones((NODES, 3), np.float16), "train_mask": node < 6}
    several, values = np.stack([node % 2, node % 3 == 0], axis=1), node / 2
    for arrays in (sparse, dense, {**dense, "labels": several}, {**sparse, "labels": values}):
        for save in (np.savez, np.savez_compressed):
            stream = io.BytesIO()
            save(stream, **(adjacency | arrays))
            yield stream.getvalue()
    edges = np.stack([node, (node + 1) % NODES], axis=1)
    stream = io.BytesIO()
    masks = {f"{part}_masks": np.stack([node % 3 == k] * 2) for k, part in enumerate(PARTS)}
    np.savez(stream, node_features=np.eye(NODES, 3), node_labels=node % 2, edges=edges, **masks)
    yield stream.getvalue()


def pt() -> Iterator[bytes]:
    plain, sparse, rare = ring(), ring(), ring()
    with quiet_csr():
        sparse.x = sparse.x.to_sparse_csr()
    plain.edge_weight = torch.rand(2 * NODES)
    plain.train_mask = torch.arange(NODES) < 6
    rare.x = rare.x.to_sparse()
    rare.edge_index = EdgeIndex(rare.edge_index)
    rare.y = rare.y.to(torch.uint16)
    several, values = ring(), ring()
    several.y = torch.stack([plain.y, 1 - plain.y], dim=1).float()
    values.y = torch.arange(NODES) / 2
    for data in (plain, sparse, rare, several, values):
        yield _saved(data)


def graphs() -> Iterator[bytes]:
    """Sets of graphs, of classes and of values."""
    for values in (False, True):
        many = [ring() for _ in range(10)]
        for place, data in enumerate(many):
            data.y = torch.tensor([place / 3 if values else place % 2])
        yield _saved(many)


def tables() -> Iterator[bytes]:
    """Both tables of a graph in one: that of the nodes, an empty line, and that of the edges."""
    edges = "".join(f"{node},{(node + 1) % NODES}\n" for node in range(NODES))
    for header, row in TABLES.items():
        nodes = "".join(row.format(n=n, a=n % 2, b=n % 3 // 2, v=n / 2) for n in range(NODES))
        yield f"{header}\n{nodes}\n{edges}".encode()


def models() -> Iterator[bytes]:
    for backbone in ("gcn", "cheb"):
        config = recipe("ring", "other", backbone, "grelu", hidden=4)
        state = build(config, ring_graph(), 3).state_dict()
        yield _saved({"config": config.to_dict(), "seed": 3, "state_dict": state})


def ring_graph() -> Graph:
    data = ring()
    assert data.x is not None
    assert data.edge_index is not None
    assert isinstance(data.y, torch.Tensor)
    return Graph("ring", data.x, data.edge_index, None, data.y, 2)


def records() -> Iterator[bytes]:
    configs = [recipe("cora", "citation", "gcn", name) for name in ("relu", "grelu")]
    results = [make_result(config, seed, 0.5) for config in configs for seed in range(2)]
    runs = [entry for result in results for entry in together([result])]
    who = {"host": "a", "pid": 1, "start": None, "date": "2026-11-01T00:00:00+00:00"}
    claim = {"event": "started", "config": configs[0].to_dict(), "seeds": [0, 1], "missing": [1]}
    lines = [claim | who, *({"event": "finished"} | run for run in runs)]
    yield _lines(
        [*lines, {"event": "released", "config": configs[0].to_dict(), "seeds": [1]} | who]
    )
    here = {"device": "cpu", **SURROUNDINGS, "seconds": 1.0, "repeats": [1.0, 2.0]}
    timing = dict.fromkeys(runtime.IDENTITY, 1) | here | {"dataset": "cora", "backbone": "gcn"}
    timing |= {"mode": "one", "epochs_timed": 3}
    yield _lines([{"event": "timed"} | timing | {"activation": name} for name in ("relu", "grelu")])
    size = dict.fromkeys(complexity.IDENTITY, 1) | here | {"axis": "edges", "what": "grelu"}
    size |= {"diffusion": "power", "steps": 10, "preparation": None}
    yield _lines([{"event": "timed"} | size | {"value": value} for value in (10, 20)])


def _saved(content: object) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


def _lines(entries: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
