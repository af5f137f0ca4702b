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

from graphrelu.lab.data.graph import PARTS, DataError, as_data_error, first_line, require
from graphrelu.lab.data.own_files import check_size

HEADERS = (["source", "target"], ["src", "dst"], ["from", "to"])  # any of these, or none
# Of a byte of text, at least: an edge takes four, and a weight and both directions in memory.
BYTES_PER_BYTE = 16


def nodes_beside(edges: Path) -> Path:
    """The table of nodes: named as that of edges, with `nodes` in the place of `edges`."""
    head, found, tail = edges.name.rpartition("edges")
    require(
        bool(found),
        f"{edges} must have a column smiles, or edges in its name, as in edges{edges.suffix} "
        f"beside nodes{edges.suffix}.",
    )
    return edges.with_name(f"{head}nodes{tail}")


def read_tables(edges: Path) -> Data:
    """A graph from a table of edges and that of its nodes.

    Both are `.csv`, or `.tsv` with tabs. A line of the edges names two nodes, and may have a
    weight; the first may be a header. The nodes have a header: ``label``, for classes whole numbers
    or words, for values any numbers; or ``label_NAME``, ... with 0 and 1, a column for each of
    several labels. A class or a label that is not known is -1 or nothing. If present, ``id`` is
    what the edges call the node, which is else its place from 0 on; ``train``, ``val`` and ``test``
    hold 0 and 1, or ``train_0``, ... of several splits; and every other column is a feature.
    """
    nodes = nodes_beside(edges)
    for path in (edges, nodes):
        require(path.is_file(), f"There is no file {path}.")
        check_size(BYTES_PER_BYTE * path.stat().st_size, path)
    data, ids = _read_nodes(nodes)
    data.edge_index, data.edge_weight = _read_edges(edges, ids)
    return data


def _lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The place of each line that is not empty, for an error message, and its fields."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    unreadable = as_data_error(
        f"{path} cannot be read as a table", "", (csv.Error, OSError, UnicodeError)
    )
    with unreadable, path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream, delimiter=delimiter, strict=True)
        for fields in reader:
            if fields:
                yield f"{path}, line {reader.line_num}", [field.strip() for field in fields]


def _read_nodes(path: Path) -> tuple[Data, dict[str, int] | None]:
    """Everything except the edges, and the places of nodes by name, if nodes have names."""
    lines = _lines(path)
    _, header = next(lines, ("", []))
    labels, masks, features = [], [], []
    for place, name in enumerate(header):
        part = name.partition("_")[0]
        if part == "label":
            labels.append(name)
        elif part in PARTS:
            masks.append(name)
        elif name != "id":
            features.append(place)
    named = f"{path} must begin with a line of names, one of which is label."
    require(bool(labels), named)
    both = f"{path} must have a column label, or columns label_NAME, not both."
    require("label" not in labels or len(labels) == 1, both)
    require(len(set(header)) == len(header), f"{path} has two columns of one name.")
    x = array("d")
    texts = {"id", *labels, *masks}.intersection(header)
    columns: dict[str, list[str]] = {name: [] for name in texts}
    for line, fields in lines:
        fits = len(fields) == len(header)
        require(fits, f"{line}: there are {len(fields)} fields under {len(header)} names.")
        for name, field in zip(header, fields, strict=True):
            if name in columns:
                columns[name].append(field)
        try:
            x.extend(float(fields[place]) for place in features)
        except ValueError as error:
            raise DataError(f"{line}: {first_line(error)}.") from None
    with np.errstate(over="ignore"):  # what is infinite then is found later
        matrix = np.array(x, dtype=np.float64).astype(np.float32)
    num_nodes = len(columns[labels[0]])
    data = Data(
        x=torch.from_numpy(matrix.reshape(num_nodes, len(features))),
        y=_labels({name: columns[name] for name in labels}, path),
        **_masks({name: columns[name] for name in masks}, path),
    )
    if "id" not in columns:
        return data, None
    places = {name: place for place, name in enumerate(columns["id"])}
    require(len(places) == num_nodes, f"{path} names a node twice.")
    return data, places


def _labels(columns: dict[str, list[str]], path: Path) -> Tensor:
    """The classes or the values of one column, or a matrix of several labels."""
    if "label" in columns:
        return _classes(columns["label"], path)
    matrix = []
    for name, fields in columns.items():
        unknown = min(set(fields) - {"0", "1", "-1", ""}, default=None)
        require(
            unknown is None,
            f"{path}: {name} must hold 0 and 1, or -1 or nothing where it is not known, "
            f"not {unknown!r}.",
        )
        matrix.append([int(field or -1) for field in fields])
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
    fits = all(abs(number) <= len(labels) for number in numbers.values())
    require(fits, f"{path} has labels that are larger than its number of nodes.")
    return torch.tensor([numbers.get(label, -1) for label in labels], dtype=torch.long)


def _masks(marks: dict[str, list[str]], path: Path) -> dict[str, Tensor]:
    """PyG's masks: `[N]`, or `[N, splits]` where the columns are numbered."""
    columns: dict[str, dict[int, Tensor]] = {}
    for name, fields in marks.items():
        part, _, number = name.partition("_")
        numbered = f"{path}: {name} must be {part}, or {part}_ and the number of a split."
        require(not number or number.isdecimal(), numbered)
        unknown = min(set(fields) - {"0", "1"}, default=None)
        require(unknown is None, f"{path}: {name} must hold 0 and 1 only, not {unknown!r}.")
        mask = torch.tensor([field == "1" for field in fields], dtype=torch.bool)
        columns.setdefault(part, {})[int(number or -1)] = mask
    alike = len({tuple(sorted(of_part)) for of_part in columns.values()}) <= 1
    require(alike, f"{path}: {', '.join(columns)} must be of the same splits.")
    found = {}
    for part, of_part in columns.items():
        masks = [of_part[number] for number in sorted(of_part)]
        found[f"{part}_mask"] = masks[0] if -1 in of_part else torch.stack(masks, dim=1)
    return found


def _read_edges(path: Path, ids: dict[str, int] | None) -> tuple[Tensor, Tensor | None]:
    """The pairs of nodes as they stand in the table, and their weights, if any."""
    ends, weights, width = array("q"), array("d"), 0
    for line, fields in _lines(path):
        if not width:
            width = len(fields)
            sentence = f"{path} must have two nodes in a line, and a weight if any."
            require(width in (2, 3), sentence)
            if [field.lower() for field in fields[:2]] in HEADERS:
                continue
        require(len(fields) == width, f"{line}: there are {len(fields)} fields, not {width}.")
        try:
            ends.extend(int(field) if ids is None else ids[field] for field in fields[:2])
            weights.extend(map(float, fields[2:]))
        except KeyError as error:
            raise DataError(f"{line}: there is no node {error}.") from None
        except (ValueError, OverflowError) as error:
            raise DataError(f"{line}: {first_line(error)}.") from None
    pairs = torch.from_numpy(np.array(ends, dtype=np.int64)).view(-1, 2).t()
    weight = torch.from_numpy(np.array(weights, dtype=np.float64)).float() if weights else None
    return pairs, weight
