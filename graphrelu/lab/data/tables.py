"""A graph as two tables of text: a list of edges, and the nodes with labels and features."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import remove_self_loops, to_undirected

from graphrelu.lab.data.archives import check_size
from graphrelu.lab.data.graph import DataError, checked_edges, first_line, told

HEADERS = (["source", "target"], ["src", "dst"], ["from", "to"])  # any of these, or none
SPLITS = ("train", "val", "test")
# Of a byte of text, at least: an edge takes four, and a weight and both directions in memory.
BYTES_PER_BYTE = 16


def nodes_beside(edges: Path) -> Path:
    """The table of nodes: named as that of edges, with `nodes` in the place of `edges`."""
    head, found, tail = edges.name.rpartition("edges")
    if not found:
        raise DataError(
            f"{edges} must have edges in its name, as in edges{edges.suffix} beside "
            f"nodes{edges.suffix}."
        )
    return edges.with_name(f"{head}nodes{tail}")


def read_tables(edges: Path) -> Data:
    """A graph from a table of edges and that of its nodes, made undirected, without self-loops.

    Both are `.csv`, or `.tsv` with tabs. A line of the edges names two nodes, and may have a
    weight; the first may be a header. The nodes have a header: ``label``, for classes whole numbers
    or words, for values any numbers; or ``label_NAME``, ... with 0 and 1, a column for each of
    several labels. A class or a label that is not known is -1 or nothing. If present, ``id`` is
    what the edges call the node, which is else its place from 0 on; ``train``, ``val`` and ``test``
    hold 0 and 1, or ``train_0``, ... of several splits; and every other column is a feature.
    """
    nodes = nodes_beside(edges)
    for path in (edges, nodes):
        if not path.is_file():
            raise DataError(f"There is no file {path}.")
        check_size(BYTES_PER_BYTE * path.stat().st_size, path)
    data, ids = _read_nodes(nodes)
    data.edge_index, data.edge_weight = _read_edges(edges, ids, data.num_nodes)
    return data


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number and the fields of each line that is not empty."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    unreadable = told(f"{path} cannot be read as a table", "", (csv.Error, OSError, UnicodeError))
    with unreadable, path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream, delimiter=delimiter, strict=True)
        for fields in reader:
            if fields:
                yield reader.line_num, [field.strip() for field in fields]


def _read_nodes(path: Path) -> tuple[Data, dict[str, int] | None]:
    """Everything except the edges, and the places of nodes by name, if nodes have names."""
    lines = _lines(path)
    _, header = next(lines, (0, []))
    labels = [name for name in header if name.partition("_")[0] == "label"]
    if not labels:
        raise DataError(f"{path} must begin with a line of names, one of which is label.")
    if "label" in labels and len(labels) > 1:
        raise DataError(f"{path} must have a column label, or columns label_NAME, not both.")
    if len(set(header)) < len(header):
        raise DataError(f"{path} has two columns of one name.")
    masks = [name for name in header if name.partition("_")[0] in SPLITS]
    special = {"id", *labels, *masks}
    features = [place for place, name in enumerate(header) if name not in special]
    x, ids = array("d"), []
    columns: dict[str, list[str]] = {name: [] for name in (*labels, *masks)}
    for number, fields in lines:
        if len(fields) != len(header):
            raise DataError(
                f"{path}, line {number}: there are {len(fields)} fields under {len(header)} names."
            )
        row = dict(zip(header, fields, strict=True))
        ids.append(row.get("id", ""))
        for name, column in columns.items():
            column.append(row[name])
        try:
            x.extend(float(fields[place]) for place in features)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {first_line(error)}.") from None
    with np.errstate(over="ignore"):  # what is infinite then is found later
        matrix = np.array(x, dtype=np.float64).reshape(len(ids), len(features)).astype(np.float32)
    y = _labels({name: columns[name] for name in labels}, path)
    marks = _masks({name: columns[name] for name in masks}, path)
    data = Data(x=torch.from_numpy(matrix), y=y, **marks)
    if "id" not in header:
        return data, None
    places = {name: place for place, name in enumerate(ids)}
    if len(places) < len(ids):
        raise DataError(f"{path} names a node twice.")
    return data, places


def _labels(columns: dict[str, list[str]], path: Path) -> Tensor:
    """The classes or the values of one column, or a matrix of several labels."""
    if "label" in columns:
        return _classes(columns["label"], path)
    for name, fields in columns.items():
        if unknown := set(fields) - {"0", "1", "-1", ""}:
            raise DataError(
                f"{path}: {name} must hold 0 and 1, or -1 or nothing where it is not known, "
                f"not {min(unknown)!r}."
            )
    matrix = [[int(field or -1) for field in fields] for fields in columns.values()]
    return torch.tensor(matrix, dtype=torch.long).t()


def _classes(labels: list[str], path: Path) -> Tensor:
    """Classes or values. Whole numbers stay, words are numbered in order, and an unknown class is
    -1. Numbers that are not all whole are values."""
    known = {label for label in labels if label not in ("", "-1")}
    try:
        numbers = {label: int(label) for label in known}
    except ValueError:
        try:
            return torch.tensor([float(label or "nan") for label in labels], dtype=torch.double)
        except ValueError:
            numbers = {label: place for place, label in enumerate(sorted(known))}
    if any(abs(number) > len(labels) for number in numbers.values()):
        raise DataError(f"{path} has labels that are larger than its number of nodes.")
    return torch.tensor([numbers.get(label, -1) for label in labels], dtype=torch.long)


def _masks(marks: dict[str, list[str]], path: Path) -> dict[str, Tensor]:
    """PyG's masks: `[N]`, or `[N, splits]` where the columns are numbered."""
    columns: dict[str, dict[int, Tensor]] = {}
    for name, fields in marks.items():
        part, _, number = name.partition("_")
        if number and not number.isdecimal():
            raise DataError(f"{path}: {name} must be {part}, or {part}_ and the number of a split.")
        if unknown := set(fields) - {"0", "1"}:
            raise DataError(f"{path}: {name} must hold 0 and 1 only, not {min(unknown)!r}.")
        mask = torch.tensor([field == "1" for field in fields], dtype=torch.bool)
        columns.setdefault(part, {})[int(number or -1)] = mask
    if len({tuple(sorted(of_part)) for of_part in columns.values()}) > 1:
        raise DataError(f"{path}: {', '.join(columns)} must be of the same splits.")
    found = {}
    for part, of_part in columns.items():
        masks = [of_part[number] for number in sorted(of_part)]
        found[f"{part}_mask"] = masks[0] if -1 in of_part else torch.stack(masks, dim=1)
    return found


def _read_edges(
    path: Path, ids: dict[str, int] | None, num_nodes: int
) -> tuple[Tensor, Tensor | None]:
    ends, weights, width = array("q"), array("d"), 0
    for number, fields in _lines(path):
        if not width:
            width = len(fields)
            if width not in (2, 3):
                raise DataError(f"{path} must have two nodes in a line, and a weight if any.")
            if [field.lower() for field in fields[:2]] in HEADERS:
                continue
        if len(fields) != width:
            raise DataError(f"{path}, line {number}: there are {len(fields)} fields, not {width}.")
        try:
            for field in fields[:2]:
                ends.append(int(field) if ids is None else ids[field])
            weights.extend(map(float, fields[2:]))
        except KeyError as error:
            raise DataError(f"{path}, line {number}: there is no node {error}.") from None
        except (ValueError, OverflowError) as error:
            raise DataError(f"{path}, line {number}: {first_line(error)}.") from None
    pairs = torch.from_numpy(np.array(ends, dtype=np.int64)).view(-1, 2).t()
    weight = torch.from_numpy(np.array(weights, dtype=np.float64)).float() if weights else None
    edge_index, weight = remove_self_loops(checked_edges(pairs, num_nodes, path.name), weight)
    if weight is None:
        return to_undirected(edge_index, num_nodes=num_nodes), None
    # Of an edge that is there several times, or in both directions, the mean.
    edge_index, weight = to_undirected(edge_index, weight, num_nodes=num_nodes, reduce="mean")
    return edge_index, weight
