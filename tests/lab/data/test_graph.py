"""Every graph is checked before it is used, and each fault has a sentence of its own."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from graphrelu.lab.data.graph import DataError, from_data

NAN = torch.full((12, 3), float("nan"))
LABELS = torch.arange(12) % 2


def test_a_sound_graph(ring: Data) -> None:
    ring.train_mask = torch.arange(12) < 4
    ring.val_mask = torch.zeros(12, 5, dtype=torch.uint8)
    graph = from_data(ring, "ring", "social")
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (12, 24, 3)
    assert (graph.num_classes, graph.family, graph.name) == (2, "social", "ring")
    assert graph.edge_weight is None
    assert graph.x.dtype == torch.float32
    assert graph.train_mask is not None
    assert graph.train_mask.shape == (12,)
    assert graph.val_mask is not None
    assert graph.val_mask.dtype == torch.bool
    assert graph.test_mask is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"x": None}, "ring has no node features (x is missing)."),
        ({"x": torch.ones(12)}, "ring: the features must be a real matrix [nodes, features]."),
        ({"x": NAN}, "ring: the features contain NaN or infinite values."),
        ({"x": 1 / torch.zeros(12, 3)}, "ring: the features contain NaN or infinite values."),
        ({"x": NAN.to_sparse()}, "ring: the features contain NaN or infinite values."),
        ({"edge_index": None}, "ring has no edges (edge_index is missing)."),
        (
            {"edge_index": torch.zeros(3, 2).long()},
            "ring: edge_index must have the shape [2, edges].",
        ),
        (
            {"edge_index": torch.zeros(2, 3)},
            "ring: edge_index must hold integers, not torch.float32.",
        ),
        (
            {"edge_index": torch.tensor([[0], [12]])},
            "ring: an edge names node 12, but the 12 nodes are numbered from 0 to 11.",
        ),
        (
            {"edge_index": torch.tensor([[0], [-1]])},
            "ring: an edge names node -1, but the 12 nodes are numbered from 0 to 11.",
        ),
        (
            {"edge_weight": torch.ones(3)},
            "ring: edge_weight must hold one number for each of 24 edges.",
        ),
        (
            {"edge_weight": -torch.ones(24)},
            "ring: the edge weights must be finite and not negative.",
        ),
        ({"y": None}, "ring has no labels (y is missing)."),
        ({"y": -torch.ones(12).long()}, "ring has no labels (every y is negative)."),
        ({"y": LABELS[:10]}, "ring has 10 labels for 12 nodes."),
        ({"y": LABELS.float()}, "ring: the labels must be integers, not torch.float32."),
        (
            {"y": torch.ones(12, 2).long()},
            "ring: the labels must be one class number per node "
            "(several labels per node are not supported).",
        ),
        (
            {"y": torch.zeros(12).long()},
            "ring: all labelled nodes are of one class, there is nothing to learn.",
        ),
        (
            {"y": 2 * LABELS},
            "ring: the labels of 2 classes must run from 0 to 1 without gaps, "
            "but the largest is 2.",
        ),
        (
            {"y": (torch.arange(12) > 7).long()},
            "ring: class 1 has fewer than 5 nodes (4).",
        ),
        (
            {"val_mask": torch.ones(5).bool()},
            "ring: val_mask must have the shape [12] or [12, splits].",
        ),
        ({"test_mask": torch.arange(12)}, "ring: test_mask must hold true and false only."),
    ],
)
def test_each_fault_has_its_sentence(
    ring: Data, changes: dict[str, torch.Tensor | None], sentence: str
) -> None:
    for key, value in changes.items():
        setattr(ring, key, value)
    with pytest.raises(DataError) as caught:
        from_data(ring, "ring")
    assert str(caught.value) == sentence


def test_only_graphs_of_one_kind_of_node() -> None:
    with pytest.raises(DataError, match="ring is a HeteroData, not a PyG Data object"):
        from_data(HeteroData(), "ring")


def test_sparse_features_stay_sparse(ring: Data) -> None:
    dense = ring.x
    ring.x = dense.to_sparse()
    graph = from_data(ring, "ring")
    assert graph.x.layout == torch.sparse_csr
    assert torch.equal(graph.x.to_dense(), dense)


def test_a_column_of_labels_weights_and_unlabelled_nodes(ring: Data) -> None:
    ring.y[0] = -1
    ring.y = ring.y.view(-1, 1).to(torch.int32)
    ring.edge_weight = torch.ones(24, 1, dtype=torch.float64)
    graph = from_data(ring, "ring")
    assert graph.y.shape == (12,)
    assert graph.y.dtype == torch.int64
    assert int(graph.y[0]) == -1
    assert graph.edge_weight is not None
    assert graph.edge_weight.shape == (24,)
    assert graph.edge_weight.dtype == torch.float32
