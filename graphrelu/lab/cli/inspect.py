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

app = typer.Typer()


@app.command(epilog="Example: graphrelu inspect citeseer --out results/quick/inspect-citeseer")
def inspect(
    dataset: Annotated[str, typer.Argument(help=DATASET)] = "digits",
    model: Annotated[
        Path | None, typer.Option(help="A model that compare --save kept; else one is trained.")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="Backbone to train; else gcn.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed to train with; else 0.")] = None,
    pairs: Annotated[
        int, typer.Option(help="How many random pairs of a node and a channel to classify.")
    ] = 1_000,
    out: Annotated[
        Path | None,
        typer.Option(help="Start of the names of the files; else results/quick/inspect-DATASET."),
    ] = None,
    device: Device = "auto",
    data: Root = None,
) -> None:
    """Draw and classify the functions that GReLU has learned on a graph."""
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
