"""``graphrelu inspect``: the functions that GReLU has learned on a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphrelu.lab.cli.compare import DATASET
from graphrelu.lab.cli.shared import Device, Root, show_page
from graphrelu.lab.record import output
from graphrelu.lab.reproduce import inspection
from graphrelu.lab.reproduce.command import one_sentence

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: graphrelu inspect citeseer --out results/quick/inspect-citeseer")
def inspect(
    dataset: Annotated[str, typer.Argument(help=DATASET)] = "digits",
    model: Annotated[
        Path | None,
        typer.Option(help="A model that compare --save wrote. By default one is trained."),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="The convolution of the model to train: gcn by default.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="The seed of the model to train: 0 by default.")
    ] = None,
    pairs: Annotated[
        int, typer.Option(help="How many functions to draw, each of a random node and channel.")
    ] = 1_000,
    out: Annotated[
        Path | None,
        typer.Option(
            help="How the names of the files begin: results/quick/inspect-DATASET by default."
        ),
    ] = None,
    device: Device = "auto",
    data: Root = None,
) -> None:
    """Draw the functions that a trained GReLU applies, and count their shapes."""
    with one_sentence():
        prefix = out or inspection.default_prefix(dataset)
        record = inspection.record_of(output.check_record(prefix.with_name(f"{prefix.name}.jsonl")))
        if model is None:
            looks = inspection.inspect_trained(
                record, dataset, backbone or "gcn", [seed or 0], pairs, root=data, device=device
            )
        elif backbone is None and seed is None:
            looks = inspection.inspect_saved(
                record, dataset, model, pairs, root=data, device=device
            )
        else:
            raise ValueError("A saved model has its own backbone and seed; leave them out.")
        page, *others = inspection.write(looks, record.path)
        show_page([page, record.path, *others])
