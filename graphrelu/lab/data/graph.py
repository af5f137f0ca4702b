"""One graph with labelled nodes, and the checks before training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data

Family = Literal["citation", "social", "other"]
# One class of each node, or graph; any number of labels of it, each 0 or 1; or a number to predict.
Task = Literal["classes", "labels", "values"]
Kinds: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]

# Fewer nodes than this cannot fill a training, a validation and a test set (of their class).
MIN_NODES = 5


class DataError(ValueError):
    """A dataset that cannot be used; the message is one sentence for the user."""


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, for use inside a sentence."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")


@contextmanager
def told(fault: str, remedy: str = "", kinds: Kinds = Exception) -> Iterator[None]:
    """In here an error of these kinds becomes a :class:`DataError`: ``fault (reason)remedy.``"""
    try:
        yield
    except DataError:
        raise
    except kinds as error:
        raise DataError(f"{fault} ({first_line(error)}){remedy}.") from error


class Sized:
    """The sizes and the task of a graph or a set of graphs."""

    x: Tensor
    edge_index: Tensor
    y: Tensor

    @property
    def num_nodes(self) -> int:
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        return self.edge_index.size(1)

    @property
    def num_features(self) -> int:
        return self.x.size(1)

    @property
    def task(self) -> Task:
        """What is learned, as the labels show."""
        if self.y.dim() == 2:
            return "labels"
        return "values" if self.y.is_floating_point() else "classes"

    @property
    def strata(self) -> Tensor:
        """The classes, which a split keeps in proportion; 0 without classes, -1 without a label."""
        if self.task == "classes":
            return self.y
        if self.task == "values":
            return torch.zeros_like(self.y, dtype=torch.long)
        return self.y[:, 0].long().clamp(max=0)


@dataclass(frozen=True, eq=False)
class Graph(Sized):
    """A graph whose nodes are learned, with its features as they were stored.

    ``x`` is dense ``[N, F]`` or a sparse CSR tensor, where the source is sparse. ``y`` are classes
    ``[N]``, labels ``[N, L]`` of 0 and 1 in floating point, or values ``[N]`` in floating point;
    ``num_classes`` is the number of classes or of labels, and 1 for values. A node without a label
    has -1. The masks, if any, are ``[N]`` or ``[N, R]`` for ``R`` splits.
    """

    name: str
    x: Tensor
    edge_index: Tensor
    edge_weight: Tensor | None
    y: Tensor
    num_classes: int
    family: Family = "other"
    train_mask: Tensor | None = None
    val_mask: Tensor | None = None
    test_mask: Tensor | None = None

    @property
    def num_unlabelled(self) -> int:
        """The nodes that are neither learned from nor tested on."""
        return int((self.strata < 0).sum())


def from_data(data: Any, name: str, family: Family = "other") -> Graph:
    """Turn a PyG :class:`~torch_geometric.data.Data` object into a checked :class:`Graph`."""
    if not isinstance(data, Data):
        raise DataError(f"{name} is a {type(data).__name__}, not a PyG Data object.")
    x = checked_features(data.x, name)
    num_nodes = x.size(0)
    y, num_classes = checked_labels(data.y, num_nodes, name)
    edge_index = checked_edges(data.edge_index, num_nodes, name)
    return Graph(
        name=name,
        x=x,
        edge_index=edge_index,
        edge_weight=_edge_weight(getattr(data, "edge_weight", None), edge_index.size(1), name),
        y=y,
        num_classes=num_classes,
        family=family,
        train_mask=_mask(data, "train_mask", num_nodes, name),
        val_mask=_mask(data, "val_mask", num_nodes, name),
        test_mask=_mask(data, "test_mask", num_nodes, name),
    )


@contextmanager
def quiet_csr() -> Iterator[None]:
    """Without torch's announcements, once per process, that sparse CSR tensors are in beta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def checked_features(x: Any, name: str) -> Tensor:
    if x is None:
        raise DataError(f"{name} has no node features (x is missing).")
    if not isinstance(x, Tensor) or x.dim() != 2 or x.size(1) == 0 or x.is_complex():
        raise DataError(f"{name}: the features must be a real matrix [nodes, features].")
    if x.size(0) == 0:
        raise DataError(f"{name} has no nodes.")
    features: Tensor
    if x.layout == torch.strided:
        features = values = x.as_subclass(Tensor).float().contiguous()
    else:
        with quiet_csr():
            features = x.to_sparse_csr().float()
        values = features.values()
    if not bool(torch.isfinite(values).all()):
        raise DataError(f"{name}: the features contain NaN or infinite values.")
    return features


def checked_edges(edge_index: Any, num_nodes: int, name: str) -> Tensor:
    if edge_index is None:
        raise DataError(f"{name} has no edges (edge_index is missing).")
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise DataError(f"{name}: edge_index must have the shape [2, edges].")
    if not _is_integer(edge_index):
        raise DataError(f"{name}: edge_index must hold integers, not {edge_index.dtype}.")
    # PyG may hand over its own subclass of Tensor; plain tensors behave the same everywhere.
    edge_index = edge_index.as_subclass(Tensor).long().contiguous()
    if edge_index.numel() > 0:
        low, high = int(edge_index.min()), int(edge_index.max())
        if low < 0 or high >= num_nodes:
            outlier = low if low < 0 else high
            raise DataError(
                f"{name}: an edge names node {outlier}, "
                f"but the {num_nodes} nodes are numbered from 0 to {num_nodes - 1}."
            )
    return edge_index


def _edge_weight(weight: Any, num_edges: int, name: str) -> Tensor | None:
    if weight is None:
        return None
    if not isinstance(weight, Tensor) or weight.numel() != num_edges:
        raise DataError(f"{name}: edge_weight must hold one number for each of {num_edges} edges.")
    flat: Tensor = weight.reshape(-1).float()
    if not bool(torch.isfinite(flat).all()) or bool((flat < 0).any()):
        raise DataError(f"{name}: the edge weights must be finite and not negative.")
    return flat


def checked_labels(y: Any, count: int, name: str, what: str = "node") -> tuple[Tensor, int]:
    """The labels of all nodes, or of all graphs, and the number of classes, labels or values."""
    if y is None:
        raise DataError(f"{name} has no labels (y is missing).")
    if isinstance(y, Tensor) and y.dim() == 2 and y.size(1) == 1:
        y = y.view(-1)
    if not isinstance(y, Tensor) or y.dim() not in (1, 2) or 0 in y.shape[1:] or y.is_complex():
        raise DataError(
            f"{name}: y must hold a class or a value of each {what} [{what}s], or 0 and 1 for each "
            f"of its labels [{what}s, labels]."
        )
    if y.size(0) != count:
        raise DataError(f"{name} has {y.size(0)} labels for {count} {what}s.")
    if y.dim() == 2:
        return _checked_matrix(y.float(), name, what)
    if y.is_floating_point():
        return _checked_values(y.double(), name, what)
    return _checked_classes(y.long(), name, what)


def _checked_classes(y: Tensor, name: str, what: str) -> tuple[Tensor, int]:
    labelled = y[y >= 0]
    if labelled.numel() == 0:
        raise DataError(f"{name} has no labels (every y is negative).")
    classes, sizes = labelled.unique(return_counts=True)
    if classes.numel() == 1:
        raise DataError(
            f"{name}: all labelled {what}s are of one class, there is nothing to learn."
        )
    if int(classes[-1]) != classes.numel() - 1:
        raise DataError(
            f"{name}: the labels of {classes.numel()} classes must run from 0 to "
            f"{classes.numel() - 1} without gaps, but the largest is {int(classes[-1])}."
        )
    if int(sizes.min()) < MIN_NODES:
        raise DataError(
            f"{name}: class {int(sizes.argmin())} has fewer than {MIN_NODES} {what}s "
            f"({int(sizes.min())})."
        )
    return y, classes.numel()


def _checked_matrix(y: Tensor, name: str, what: str) -> tuple[Tensor, int]:
    unlabelled = (y == -1).all(dim=1)
    labelled = y[~unlabelled]
    if not bool(((labelled == 0) | (labelled == 1)).all()):
        raise DataError(
            f"{name}: a y of several columns must hold 0 and 1 only, or -1 in the whole row of a "
            f"{what} without labels."
        )
    _check_enough(labelled, name, what)
    return y, y.size(1)


def _checked_values(y: Tensor, name: str, what: str) -> tuple[Tensor, int]:
    if not bool(y.isfinite().all()):
        without = "; masks can leave a node without a value out" if what == "node" else ""
        raise DataError(f"{name}: y must hold finite values, not NaN or infinite ones{without}.")
    _check_enough(y, name, what)
    return y, 1


def _check_enough(labelled: Tensor, name: str, what: str) -> None:
    if len(labelled) < MIN_NODES:
        raise DataError(f"{name} has fewer than {MIN_NODES} {what}s with labels ({len(labelled)}).")
    if bool((labelled == labelled[0]).all()):
        raise DataError(f"{name}: y is the same for all {what}s, there is nothing to learn.")


def _mask(data: Data, key: str, num_nodes: int, name: str) -> Tensor | None:
    mask = getattr(data, key, None)
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dim() not in (1, 2) or mask.size(0) != num_nodes:
        raise DataError(
            f"{name}: {key} must have the shape [{num_nodes}] or [{num_nodes}, splits]."
        )
    if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        raise DataError(f"{name}: {key} must hold true and false only.")
    return mask.bool()


def _is_integer(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
