"""A graph as two tables of text: a list of edges, and the nodes with labels and features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphrelu.lab.data.graph import PARTS
from graphrelu.lab.errors import DataError, as_data_error, require


def nodes_beside(edges: Path) -> Path:
    """The table of nodes: named as that of edges, with `nodes` in place of `edges`."""
    head, found, tail = edges.name.rpartition("edges")
    require(
        bool(found),
        f"{edges} has no column smiles; a table of edges must have edges in its name, as in "
        f"edges.csv beside nodes.csv.",
    )
    return edges.with_name(f"{head}nodes{tail}")


def read_tables(edges: Path) -> Data:
    """A graph from a table of edges and that of its nodes.

    A line of the edges names two nodes, and may have a weight; a first line that names no node is a
    header. The nodes have a header: ``label``, for classes whole numbers or words, for values any
    numbers; a class that is not known is -1 or nothing. If present, ``id`` is what the edges call
    the node, which is else its place from 0 on; ``train``, ``val`` and ``test`` hold 0 and 1; and
    every other column is a feature.
    """
    data, names = _read_nodes(nodes_beside(edges))
    data.edge_index, data.edge_weight = _read_edges(edges, names)
    return data


def read_table(path: Path, rows: int | None = None) -> Any:
    """The fields of a table, as texts in a data frame of pandas. Its index counts lines from 0, and
    empty lines are left out."""
    import pandas as pd

    require(path.is_file(), f"There is no file {path}.")
    # A damaged file raises many kinds of errors, in pandas and in what unpacks it.
    with as_data_error(f"{path} cannot be read as a table"):
        table = pd.read_csv(
            path,
            header=None,
            nrows=rows,
            dtype=str,
            keep_default_na=False,
            skipinitialspace=True,
            skip_blank_lines=False,
            encoding="utf-8-sig",
        )
    table = table.fillna("").apply(lambda column: column.str.strip())
    table = table[(table != "").any(axis=1)]
    require(len(table) > 0, f"{path} is empty.")
    return table


def with_header(table: Any, path: Path) -> Any:
    """The table with its first line as the names of its columns."""
    header = table.iloc[0].tolist()
    require(len(set(header)) == len(header), f"{path} has two columns with the same name.")
    return table.iloc[1:].set_axis(header, axis=1)


def numbers(column: Any, path: Path, name: str, gaps: bool = False) -> np.ndarray:
    """The numbers in a column of texts; with ``gaps``, NaN for no text."""
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce")
    check_column(column, values.notna() | (gaps & (column == "")), path, name, "numbers")
    return values.to_numpy(np.float64)


def check_column(column: Any, fits: Any, path: Path, name: str, rule: str) -> None:
    """Raise a :class:`DataError` that names the first line of a column that does not fit."""
    if not fits.all():
        line = fits.idxmin()
        raise DataError(f"{path}, line {line + 1}: {name} must hold {rule}, not {column[line]!r}.")


def _read_nodes(path: Path) -> tuple[Data, Any]:
    """Everything except the edges, and the names of the nodes: their places if they have none."""
    import pandas as pd

    table = with_header(read_table(path), path)
    require("label" in table, f"{path} needs a header line with a column label.")
    features = [name for name in table if name not in ("id", "label", *PARTS)]
    for name in features:
        is_odd = name.partition("_")[0] in ("label", *PARTS)
        require(not is_odd, f"{path}: {name} would be a feature; name it otherwise.")
    x = np.empty((len(table), len(features)))
    for column, name in enumerate(features):
        x[:, column] = numbers(table[name], path, name)
    data = Data(x=torch.from_numpy(x), y=_classes(table["label"]))
    for part in filter(table.__contains__, PARTS):
        check_column(table[part], table[part].isin(("0", "1")), path, part, "0 and 1 only")
        data[f"{part}_mask"] = torch.tensor((table[part] == "1").to_numpy())
    names = pd.Index(table["id"] if "id" in table else map(str, range(len(table))))
    require(names.is_unique, f"{path} names a node twice.")
    return data, names


def _classes(column: Any) -> Tensor:
    """Classes or values. Whole numbers stay, words are numbered in order, and an unknown class is
    -1. Numbers that are not all whole are values."""
    import pandas as pd

    known = column[~column.isin(("", "-1"))]
    values = pd.to_numeric(known, errors="coerce")
    is_number = values.notna() | (known.str.lower() == "nan")
    if not is_number.all():
        words = column.where(column.index.isin(known.index)).astype("category")
        return torch.tensor(words.cat.codes.to_numpy(np.int64))
    if values.dtype.kind in "iu":
        return torch.from_numpy(values.reindex(column.index, fill_value=-1).to_numpy(copy=True))
    return torch.tensor(pd.to_numeric(column, errors="coerce").to_numpy(np.float64))


def _read_edges(path: Path, names: Any) -> tuple[Tensor, Tensor | None]:
    """The pairs of nodes as they stand in the table, and their weights, if any."""
    table = read_table(path)
    sentence = f"{path} must have two nodes per line, and optionally a weight."
    require(table.shape[1] in (2, 3), sentence)
    if not table.iloc[0, :2].isin(names).any():
        table = table.iloc[1:]  # a header
    for column in (0, 1):
        known = table[column].isin(names)
        check_column(table[column], known, path, f"column {column + 1}", "names of nodes")
    ends = np.stack([names.get_indexer(table[column]) for column in (0, 1)])
    weight = None
    if table.shape[1] == 3:
        weight = torch.tensor(numbers(table[2], path, "the weight"), dtype=torch.float)
    return torch.from_numpy(ends), weight
