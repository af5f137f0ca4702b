"""A look inside one trained model of each cell, in a file beside the record."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.utils.smiles import x_map

from graphrelu import GReLU
from graphrelu.lab.data.own_files import read_arrays
from graphrelu.lab.engine.graph_training import Training
from graphrelu.lab.engine.train import SeedBatch, build
from graphrelu.lab.errors import as_data_error

SAMPLED_NODES = 64
SAMPLED_GRAPHS, SAMPLED_NODES_OF_EACH = 4, 20  # of a set


def inspection_path(record: Path, key: str) -> Path:
    """Where the look inside a cell's first run lies, beside the record."""
    return record.with_suffix("").with_name(record.stem + "_inspection") / f"{key}.npz"


@torch.no_grad()
def _seen(model: Module, inputs: Any, nodes: Tensor) -> tuple[Tensor, dict[str, Any]]:
    """The model's output in evaluation and, of each GReLU in it, gamma of all nodes and the
    coefficients of these."""
    arrays: dict[str, Any] = {}

    def note(name: str, act: GReLU, args: Any, kwargs: Any) -> None:
        slopes, intercepts = act.coefficients(*args, **kwargs)
        own = nodes.to(slopes.device)
        kept = {"nodes": own, "slopes": slopes[own], "intercepts": intercepts[own]}
        kept["gamma"] = act.gamma(*args, **kwargs)
        arrays.update({f"{name}.{what}": _small(value) for what, value in kept.items()})

    for name, module in model.named_modules():
        if isinstance(module, GReLU):
            module.register_forward_pre_hook(partial(note, name), with_kwargs=True)
    return model.eval()(inputs), arrays


def inspect(batch: SeedBatch, seed: int) -> bytes:
    """A file of the predictions of one run and, of each GReLU in it, gamma and the coefficients of
    some nodes: enough to draw a cell later without training it again."""
    row = batch.seeds.index(seed)
    model = build(batch.config, batch.graph, seed).to(batch.device)
    model.load_state_dict({name: value[row] for name, value in batch.best.items()})
    out, seen = _seen(model, batch.inputs, _spread(batch.graph.num_nodes, SAMPLED_NODES))
    return _file(seed=np.int64(seed), prediction=_small(out.argmax(dim=1).to(torch.int16)), **seen)


def inspect_set(training: Training) -> bytes:
    """The same of a run on a set of graphs, after its last epoch; with some test graphs, from small
    to large, and what the model predicts of each (of its first target)."""
    graphs, data, targets = training.graphs, training.data, training.targets
    test = training.parts[2]
    ordered = test[graphs.node_count[test].argsort(stable=True)]
    parts = torch.arange(1, SAMPLED_GRAPHS + 1)
    chosen = ordered[((len(ordered) - 1) * parts // SAMPLED_GRAPHS).unique()]
    ((index, shape),) = data.batches(chosen, len(chosen))
    inputs = data.gather(index, shape, training.settings)
    count = graphs.node_count[chosen]
    starts = (count.cumsum(0) - count).tolist()
    sampled = [
        start + _spread(size, SAMPLED_NODES_OF_EACH)
        for start, size in zip(starts, count.tolist(), strict=True)
    ]
    out, arrays = _seen(training.model, inputs, torch.cat(sampled))
    if targets.task == "classes":
        prediction = out.argmax(dim=1)
    else:
        out = out.sigmoid() if targets.task == "labels" else out * targets.std + targets.mean
        prediction = out[:, 0]
    arrays |= {
        "seed": np.int64(training.seed),
        "node_count": count.numpy(),
        "edge_index": inputs.edge_index.cpu().numpy(),
        "target": graphs.y[chosen, 0].numpy(),
        "prediction": prediction.cpu().numpy(),
    }
    if graphs.nodes.sizes[:1] == (len(x_map["atomic_num"]),):
        arrays["atoms"] = graphs.nodes.table[inputs.nodes.cpu(), 0].numpy()
    return _file(**arrays)


def _spread(count: int, at_most: int) -> Tensor:
    return torch.linspace(0, count - 1, at_most).long().unique()


def _file(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def read_look(path: Path) -> dict[str, np.ndarray]:
    """The arrays that :func:`inspect` or :func:`inspect_set` wrote."""
    # A damaged file raises many kinds of errors, in numpy and in zipfile.
    with as_data_error(f"{path} is not a look inside a model"):
        return read_arrays(path)


def _small(tensor: Tensor) -> np.ndarray:
    tensor = tensor.half() if tensor.is_floating_point() else tensor
    return tensor.cpu().numpy()
