"""Files of trained models: parameters on request, and a look inside one model per cell."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from graphrelu import GReLU
from graphrelu.lab.data.archives import read_arrays
from graphrelu.lab.data.checkpoints import load_checkpoint
from graphrelu.lab.data.graph import DataError, Graph, first_line
from graphrelu.lab.engine.stacked import StackedRuns
from graphrelu.lab.engine.train import SeedBatch, build
from graphrelu.lab.models.backbones import GNN
from graphrelu.lab.record import kinds
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.output import complete

SAMPLED_NODES = 64
MOST_OF_AN_OPTION = 10_000  # layers, heads, steps of a saved model
Call: TypeAlias = tuple[GReLU, tuple[Any, ...]]


def save_models(batch: StackedRuns, folder: Path) -> list[Path]:
    """One file per run: its configuration, seed, and the parameters of its best epoch."""
    config = batch.config
    paths = []
    for row, seed in enumerate(batch.seeds):
        state = {name: value[row].detach().cpu().clone() for name, value in batch.best.items()}
        names = (file_name(config.dataset), config.backbone, config.activation)
        stem = "-".join((*names, config.key(), f"seed{seed}"))
        path = folder / f"{stem}.pt"
        content = {"config": config.to_dict(), "seed": seed, "state_dict": state}
        buffer = io.BytesIO()  # torch does not say what went wrong with a file of its own
        torch.save(content, buffer)
        with complete(path) as part:
            part.write_bytes(buffer.getvalue())
        paths.append(path)
    return paths


def read_model(path: Path) -> tuple[Config, int, dict[str, Tensor]]:
    """Configuration, seed and parameters of a saved model with GReLU."""
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    try:
        content = load_checkpoint(path)
        config, seed = Config.from_dict(content["config"]), content["seed"]
        state = {name: _parameter(value) for name, value in content["state_dict"].items()}
        if not kinds.whole(seed) or seed < 0:
            raise ValueError(f"A seed is a whole number from 0, not {seed!r}.")
    except DataError:
        raise
    except Exception as error:  # torch names no type for what a file may hold instead
        raise ValueError(f"{path} is not a model saved by graphrelu compare --save.") from error
    if config.activation != "grelu":
        raise ValueError(f"{path} is a model with {config.activation}, not with grelu.")
    return config, seed, state


def _parameter(value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.device.type != "cpu":
        raise ValueError("A parameter is a dense tensor.")
    return value.detach()


def saved_model(
    config: Config, graph: Graph, seed: int, state: Mapping[str, Tensor], path: Path
) -> GNN:
    """The model of a file, if the parameters fit the configuration."""
    options = (*config.activation_options, *config.backbone_options)
    try:
        if any(isinstance(value, int) and value > MOST_OF_AN_OPTION for _, value in options):
            raise ValueError("An option is out of all proportion.")
        with torch.device("meta"):  # a configuration may ask for more than there is memory
            expected = build(config, graph, seed).state_dict()
        shapes = [{name: p.shape for name, p in part.items()} for part in (expected, state)]
        if shapes[0] != shapes[1]:
            raise ValueError("The shapes differ.")
        model = build(config, graph, seed)
        model.load_state_dict(dict(state))
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"The parameters in {path} do not fit its configuration.") from error
    return model


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
    """The model's output in evaluation, and the arguments of each GReLU in the model."""
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
    with complete(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return path


def read_look(path: Path) -> dict[str, np.ndarray]:
    """The arrays that :func:`inspect` wrote, with all parts and with shapes that fit."""
    try:
        with path.open("rb") as stream:
            arrays = read_arrays(stream, path)
        layers = [name.removesuffix(".nodes") for name in arrays if name.endswith(".nodes")]
        fits = arrays["seed"].shape == () and arrays["prediction"].ndim == 1
        for layer in layers:
            nodes, slopes, intercepts, gamma = (
                arrays[f"{layer}.{part}"] for part in ("nodes", "slopes", "intercepts", "gamma")
            )
            fits &= nodes.ndim == 1 and slopes.ndim == 3 and 0 not in slopes.shape
            fits &= slopes.shape == intercepts.shape and len(slopes) == len(nodes)
            fits &= gamma.ndim == 2 and len(gamma) == len(arrays["prediction"])
            fits &= nodes.dtype.kind == "i" and 0 <= nodes.min() <= nodes.max() < len(gamma)
            numbers = (slopes, intercepts, gamma)
            fits &= all(n.dtype.kind == "f" and bool(np.isfinite(n).all()) for n in numbers)
        if not fits:
            raise ValueError("its parts do not fit each other")
    except DataError:
        raise
    except Exception as error:  # a damaged file raises many kinds, in numpy and in zipfile
        reason = first_line(error)
        raise ValueError(f"{path} is not a look inside of a model ({reason}).") from error
    return arrays


def _small(tensor: Tensor) -> np.ndarray:
    tensor = tensor.half() if tensor.is_floating_point() else tensor
    return tensor.cpu().numpy()
