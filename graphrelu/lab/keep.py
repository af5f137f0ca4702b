"""What is kept of trained models: their parameters on request, and a look inside one per cell."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from graphrelu import GReLU
from graphrelu.backbones import GNN
from graphrelu.lab.stacked import StackedRuns
from graphrelu.lab.train import SeedBatch, build

SAMPLED_NODES = 64
Call: TypeAlias = tuple[GReLU, tuple[Any, ...]]


def save_models(batch: StackedRuns, folder: Path) -> list[Path]:
    """One file per run: its configuration, seed, and the parameters of its best epoch."""
    folder.mkdir(parents=True, exist_ok=True)
    config = batch.config
    paths = []
    for row, seed in enumerate(batch.seeds):
        state = {name: value[row].detach().cpu().clone() for name, value in batch.best.items()}
        names = (file_name(config.dataset), config.backbone, config.activation)
        stem = "-".join((*names, config.key(), f"seed{seed}"))
        path = folder / f"{stem}.pt"
        content = {"config": config.to_dict(), "seed": seed, "state_dict": state}
        with complete(path) as part:
            torch.save(content, part)
        paths.append(path)
    return paths


def file_name(dataset: str) -> str:
    """A dataset's name, or its path, as a part of a file's name."""
    return Path(dataset.replace(":", "-").replace("/", "-")).stem


def inspection_path(record: Path, key: str) -> Path:
    """Where the look inside a cell's first run lies, beside the record."""
    return record.with_suffix("").with_name(record.stem + "_inspection") / f"{key}.npz"


def trained_model(batch: SeedBatch, seed: int) -> GNN:
    """One run's model, with the parameters of its best epoch."""
    row = batch.seeds.index(seed)
    model = build(batch.config, batch.graph, seed).to(batch.device)
    model.load_state_dict({name: value[row] for name, value in batch.best.items()})
    return model


@torch.no_grad()
def grelu_calls(model: GNN, inputs: Any) -> tuple[Tensor, dict[str, Call]]:
    """The model's output in evaluation, and with what each GReLU in it was called."""
    calls: dict[str, Call] = {}
    for name, module in model.named_modules():
        if isinstance(module, GReLU):

            def note(act: GReLU, args: tuple[Any, ...], name: str = name) -> None:
                calls[name] = act, args

            module.register_forward_pre_hook(note)
    return model.eval()(inputs), calls


def inspect(batch: SeedBatch, seed: int, record: Path) -> Path:
    """Keeps the predictions of one run and, of each GReLU in it, gamma and the coefficients of
    some nodes: enough to draw a cell later without training it again."""
    out, calls = grelu_calls(trained_model(batch, seed), batch.inputs)
    arrays: dict[str, Any] = {
        "seed": np.int64(seed),
        "prediction": _small(out.argmax(dim=1).to(torch.int16)),
    }
    with torch.no_grad():
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
    path = inspection_path(record, batch.config.key())
    path.parent.mkdir(parents=True, exist_ok=True)
    with complete(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return path


def _small(tensor: Tensor) -> np.ndarray:
    tensor = tensor.half() if tensor.is_floating_point() else tensor
    return tensor.cpu().numpy()


@contextmanager
def complete(path: Path) -> Iterator[Path]:
    """A file that appears under its name when it is complete."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
