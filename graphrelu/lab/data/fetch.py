"""PyG's dataset classes, run in a temporary folder: the data root only ever gains whole files."""

from __future__ import annotations

import difflib
import inspect
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, TypeVar

from torch_geometric import datasets
from torch_geometric.data import Dataset

from graphrelu.lab.data.checksums import Source
from graphrelu.lab.data.graph import DataError, Graph, from_data, require, told
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.data.readers import from_dataset

CITATION_CLASSES = ("Planetoid", "CitationFull", "CoraFull")
GRAPH_CLASS = "TUDataset"  # of sets of graphs
T = TypeVar("T")


def download(source: Source, staging: Path) -> Path:
    """Let PyG download a known dataset below ``staging``; returns the folder of raw files."""
    cls = _dataset_class(source.pyg_class)
    # Everything that PyG does after the download is left out, where it can be.
    nothing = {"_process": lambda self: None, "load": lambda self, path: None}
    if source.pyg_class == GRAPH_CLASS:  # reads at once what it has processed, so that it must
        nothing = {}
    type(cls.__name__, (cls,), nothing)(root=str(staging / source.pyg_class), name=source.pyg_name)
    shutil.rmtree(staging / source.folder / "processed", ignore_errors=True)
    return staging / source.folder / "raw"


def publish(staged: Path, folder: Path) -> None:
    """Move downloaded files to the data folder; a file gets its name once it is complete."""
    for file in sorted(path for path in staged.rglob("*") if path.is_file()):
        target = folder / file.relative_to(staged)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        with told(f"{target} cannot be written", kinds=OSError):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copyfile(file, part)
                os.replace(part, target)
            finally:
                part.unlink(missing_ok=True)


def link_files(home: Path, staging: Path, wanted: Callable[[Path], bool]) -> None:
    """Show the wanted files below ``home`` at the same places below ``staging``."""
    for folder, _, names in os.walk(home, followlinks=True):
        for file in (Path(folder, name) for name in names):
            place = file.relative_to(home)
            if not file.is_file() or not wanted(place):
                continue
            link = staging / place
            link.parent.mkdir(parents=True, exist_ok=True)
            try:
                link.symlink_to(file.resolve())
            except OSError:  # a system that does not allow symbolic links
                shutil.copyfile(file, link)


def read_pyg(name: str, root: Path) -> Graph:
    """The graph of any PyG dataset class, ``pyg:CLASS`` or ``pyg:CLASS/NAME``.

    Raw files are taken from ``root/CLASS``, laid out as PyG does, or downloaded there.
    """
    spec = name.removeprefix("pyg:")

    def only_graph(dataset: Any) -> Any:
        sentence = f"{spec} holds {len(dataset)} graphs; choose a dataset of one graph."
        require(len(dataset) == 1, sentence)
        return dataset[0]

    is_citation = spec.partition("/")[0] in CITATION_CLASSES
    return from_data(_open(spec, root, only_graph), name, "citation" if is_citation else "other")


def read_pyg_graphs(name: str, root: Path) -> GraphSet:
    """All graphs of ``pyg:TUDataset/NAME``."""
    spec = name.removeprefix("pyg:")
    return _open(spec, root, lambda dataset: from_dataset(dataset, name), use_node_attr=True)


def _open(spec: str, root: Path, use: Callable[[Any], T], **options: Any) -> T:
    """What ``use`` makes of a PyG dataset, ``CLASS`` or ``CLASS/NAME``."""
    class_name, _, name = spec.partition("/")
    cls = _dataset_class(class_name)
    home = root / class_name
    downloaded: list[bool] = []
    with tempfile.TemporaryDirectory(prefix="graphrelu-") as folder:
        staging = Path(folder)
        link_files(home, staging, lambda place: "raw" in place.parts)
        options |= _arguments(cls, class_name, name, staging)
        # PyG reports its processing to the standard error.
        with told(f"PyG cannot load {spec}"), redirect_stderr(io.StringIO()):
            found = use(_staged(cls, staging, home, downloaded)(**options))
        if downloaded:
            for raw in staging.rglob("raw"):
                publish(raw, home / raw.relative_to(staging))
    return found


def _dataset_class(class_name: str) -> Any:
    cls = getattr(datasets, class_name, None)
    if not (inspect.isclass(cls) and issubclass(cls, Dataset)):
        close = difflib.get_close_matches(class_name, datasets.__all__, n=1)
        hint = f"; did you mean {close[0]}?" if close else "."
        raise DataError(f"PyG has no dataset class {class_name!r}{hint}")
    return cls


def _arguments(cls: Any, class_name: str, name: str, staging: Path) -> dict[str, str]:
    parameters = inspect.signature(cls).parameters
    takes_name = "name" in parameters
    needs_name = takes_name and parameters["name"].default is inspect.Parameter.empty
    unwanted = f"PyG's {class_name} takes no name; write pyg:{class_name}."
    require(takes_name or not name, unwanted)
    require(
        bool(name) or not needs_name,
        f"PyG's {class_name} needs a name; write pyg:{class_name}/NAME.",
    )
    given = {"root": str(staging), "name": name}
    return {key: value for key, value in given.items() if key in parameters and value}


def _staged(cls: Any, staging: Path, home: Path, downloaded: list[bool]) -> Any:
    """The dataset class with a download that never writes through the links to the real files."""
    if cls.download is Dataset.download:
        return cls

    def download_afresh(self: Any) -> None:
        raw_dir = home / Path(self.raw_dir).relative_to(staging)
        missing = [Path(path).name for path in self.raw_paths if not Path(path).exists()]
        for link in [path for path in staging.rglob("*") if path.is_symlink()]:
            link.unlink()
        remedy = f"; put {', '.join(missing)} into {raw_dir}"
        with told(f"{cls.__name__} cannot be downloaded", remedy), redirect_stderr(sys.__stderr__):
            cls.download(self)
        downloaded.append(True)

    return type(cls.__name__, (cls,), {"download": download_afresh})
