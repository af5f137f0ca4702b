"""Every graph is checked before it is used, and each fault has a sentence of its own."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from graphrelu.lab.data.graph import from_data
from graphrelu.lab.errors import DataError

NAN = torch.full((12, 3), float("nan"))
LABELS = torch.arange(12) % 2
NOT_FINITE = ": the features contain NaN or infinite values."
NEGATIVE = "contains negative indices in 'Data' (found -1))."
EDGES = " has faulty edges ('edge_index' "
SHAPE = "needs to be of shape [2, num_edges] in 'Data' (found torch.Size([3, 2])))."
LARGER = "contains larger indices than the number of nodes (12) in 'Data' (found 12))."
SHAPES = (
    ": y must hold a class or a value of each node [nodes], or 0 and 1 for each of its labels "
    "[nodes, labels]."
)
MATRIX = (
    ": a y of several columns must hold only 0 and 1, or -1 in the whole row of a node without "
    "labels."
)
FINITE = (
    ": y must hold finite values, not NaN or infinite ones; masks can leave a node without a "
    "value out."
)
SAME = ": y is the same for all nodes, so there is nothing to learn."
GAPS = ": the labels of 2 classes must run from 0 to 1 without gaps, but the largest is 2."


def test_a_sound_graph(ring: Data) -> None:
    ring.train_mask = torch.arange(12) < 4
    ring.val_mask = torch.zeros(12, 5, dtype=torch.uint8)
    ring.y[0] = -1
    ring.y = ring.y.view(-1, 1).to(torch.int32)
    ring.edge_weight = torch.ones(24, 1, dtype=torch.float64)
    graph = from_data(ring, "ring")
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (12, 24, 3)
    assert (graph.num_classes, graph.name) == (2, "ring")
    assert (graph.y.shape, graph.y.dtype, int(graph.y[0])) == ((12,), torch.int64, -1)
    assert graph.num_unlabelled == 1
    assert graph.x.dtype == torch.float32
    assert graph.val_mask is not None
    assert graph.val_mask.dtype == torch.bool
    assert graph.test_mask is None
    assert graph.edge_weight is not None
    assert (graph.edge_weight.shape, graph.edge_weight.dtype) == ((24,), torch.float32)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("x", None, " has no node features (x is missing)."),
        (
            "x",
            torch.ones(12),
            ": the features must be a real matrix [nodes, features], not empty.",
        ),
        ("x", NAN, NOT_FINITE),
        ("x", NAN.to_sparse(), NOT_FINITE),
        ("edge_index", None, " has no edges (edge_index is missing)."),
        ("edge_index", torch.zeros(3, 2).long(), f"{EDGES}{SHAPE}"),
        ("edge_index", torch.zeros(2, 3), ": edge_index must hold integers, not torch.float32."),
        ("edge_index", torch.tensor([[0], [12]]), f"{EDGES}{LARGER}"),
        (
            "edge_index",
            torch.tensor([[0], [-1]]),
            f"{EDGES}{NEGATIVE}",
        ),
        ("edge_weight", torch.ones(3), ": edge_weight must hold one number for each of 24 edges."),
        ("edge_weight", -torch.ones(24), ": the edge weights must be finite and not negative."),
        ("y", None, " has no labels (y is missing)."),
        ("y", -torch.ones(12).long(), " has no labels (every y is negative)."),
        ("y", LABELS[:10], " has 10 labels for 12 nodes."),
        ("y", torch.ones(12, 2, 2), SHAPES),
        ("y", torch.ones(12) * 1j, SHAPES),
        ("y", torch.arange(24).view(12, 2), MATRIX),
        ("y", NAN, MATRIX),
        ("y", torch.ones(12, 2).bool(), SAME),
        ("y", -torch.ones(12, 2), SAME),
        ("y", torch.full((12,), 0.5), SAME),
        ("y", NAN[:, :1], FINITE),
        ("y", 1 / LABELS.float(), FINITE),
        ("y", 0 * LABELS, ": all labelled nodes have one class, so there is nothing to learn."),
        ("y", 2 * LABELS, GAPS),
        ("val_mask", LABELS[:5].bool(), ": val_mask must have the shape [12] or [12, splits]."),
        ("test_mask", torch.arange(12), ": test_mask must hold only true and false."),
    ],
)
def test_each_fault_has_its_sentence(
    ring: Data, key: str, value: torch.Tensor | None, sentence: str
) -> None:
    ring[key] = value
    with pytest.raises(DataError) as caught:
        from_data(ring, "ring")
    assert str(caught.value) == f"ring{sentence}"
    with pytest.raises(DataError, match="ring is a HeteroData, not a PyG Data object"):
        from_data(HeteroData(), "ring")


def test_sparse_features_stay_sparse(ring: Data) -> None:
    dense = ring.x
    ring.x = dense.to_sparse()
    graph = from_data(ring, "ring")
    assert graph.x.layout == torch.sparse_csr
    assert torch.equal(graph.x.to_dense(), dense)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.uint16, torch.long, torch.float])
def test_the_task_is_in_the_labels(ring: Data, dtype: torch.dtype) -> None:
    several = torch.stack([LABELS, 1 - LABELS, LABELS], dim=1)
    ring.y = several.to(dtype)
    graph = from_data(ring, "ring")
    assert (graph.task, graph.num_classes, graph.num_unlabelled) == ("labels", 3, 0)
    assert torch.equal(graph.y, several.float())
    ring.y = LABELS.to(dtype)
    graph = from_data(ring, "ring")
    expected = ("values", 1) if dtype == torch.float else ("classes", 2)
    assert (graph.task, graph.num_classes) == expected


def test_nodes_without_labels_and_values_below_zero(ring: Data) -> None:
    ring.y = torch.stack([LABELS, 1 - LABELS], dim=1)
    ring.y[3] = -1
    graph = from_data(ring, "ring")
    assert graph.num_unlabelled == 1
    assert graph.strata.tolist() == [0, 0, 0, -1, *8 * [0]]
    ring.y = -torch.arange(12.0).view(12, 1)
    graph = from_data(ring, "ring")
    assert graph.num_unlabelled == 0
    assert graph.y.tolist() == [-node for node in range(12)]
