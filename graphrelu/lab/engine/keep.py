"""A look inside one trained model of each cell, in a file beside the record."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from graphrelu import GReLU
from graphrelu.lab.data.graph import DataError, first_line
from graphrelu.lab.data.own_files import read_arrays
from graphrelu.lab.engine.train import SeedBatch, build
from graphrelu.lab.models.backbones import GNN

SAMPLED_NODES = 64
Call: TypeAlias = tuple[GReLU, tuple[Any, ...]]


def inspection_path(record: Path, key: str) -> Path:
    """Where the look inside a cell's first run lies, beside the record."""
    return record.with_suffix("").with_name(record.stem + "_inspection") / f"{key}.npz"


def _grelu_calls(model: GNN, inputs: Any) -> tuple[Tensor, dict[str, Call]]:
    """The model's output in evaluation, and the arguments of each GReLU in the model."""
    calls: dict[str, Call] = {}
    for name, module in model.named_modules():
        if isinstance(module, GReLU):

            def note(act: GReLU, args: tuple[Any, ...], name: str = name) -> None:
                calls[name] = act, args

            module.register_forward_pre_hook(note)
    return model.eval()(inputs), calls


@torch.no_grad()
def inspect(batch: SeedBatch, seed: int) -> bytes:
    """A file of the predictions of one run and, of each GReLU in it, gamma and the coefficients of
    some nodes: enough to draw a cell later without training it again."""
    row = batch.seeds.index(seed)
    model = build(batch.config, batch.graph, seed).to(batch.device)
    model.load_state_dict({name: value[row] for name, value in batch.best.items()})
    out, calls = _grelu_calls(model, batch.inputs)
    arrays: dict[str, Any] = {
        "seed": np.int64(seed),
        "prediction": _small(out.argmax(dim=1).to(torch.int16)),
    }
    nodes = torch.linspace(0, batch.graph.num_nodes - 1, SAMPLED_NODES).long().unique()
    for name, (act, args) in calls.items():
        slopes, intercepts = act.coefficients(*args)
        nodes = nodes.to(slopes.device)
        arrays |= {
            f"{name}.nodes": _small(nodes),
            f"{name}.slopes": _small(slopes[nodes]),
            f"{name}.intercepts": _small(intercepts[nodes]),
            f"{name}.gamma": _small(act.gamma(*args)),
        }
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def read_look(path: Path) -> dict[str, np.ndarray]:
    """The arrays that :func:`inspect` wrote."""
    try:
        arrays = read_arrays(path)
    except DataError:
        raise
    except Exception as error:  # a damaged file raises many kinds, in numpy and in zipfile
        reason = first_line(error)
        raise ValueError(f"{path} is not a look inside a model ({reason}).") from error
    return arrays


def _small(tensor: Tensor) -> np.ndarray:
    tensor = tensor.half() if tensor.is_floating_point() else tensor
    return tensor.cpu().numpy()
