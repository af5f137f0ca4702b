"""``graphrelu reproduce``: the paper's experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphrelu.lab.cli.common import Device, Engine, Root, one_sentence, show_page
from graphrelu.lab.record import divergence
from graphrelu.lab.record.config import FOLD_SPLITS
from graphrelu.lab.record.recipes import (
    ACTIVATIONS,
    BACKBONES,
    GRAPH_BACKBONES,
    GRAPH_DATASETS,
    GRAPH_HIDDEN,
    GRAPH_LAYERS,
    NODE_DATASETS,
    node_table,
)
from graphrelu.lab.render import show, tables
from graphrelu.lab.reproduce.experiment import (
    EXPERIMENTS,
    Request,
    default_record,
    experiment,
    standing,
    train_missing,
)
from graphrelu.lab.reproduce.graph import REPEATS, collect_graphs, has_table, render_graphs
from graphrelu.lab.reproduce.node import INTERRUPTED, NODE_RUNS
from graphrelu.lab.reproduce.tuning import (
    QUICK_RUNS,
    TUNED_BACKBONES,
    has_choice,
    render_tuned,
    tuned_cells,
)
from graphrelu.lab.reproduce.typed import check_tuned_only, names, typed_grid

reproduce_app = typer.Typer(
    help="The paper's experiments, run again.",
    epilog="Example: graphrelu reproduce node --datasets cora --backbones gcn --runs 30",
    no_args_is_help=True,
)


@reproduce_app.command(
    "node", epilog="Example: graphrelu reproduce node --datasets cora --backbones gcn --runs 30"
)
def node(
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Each activation chooses from the same 8 settings.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="With --tuned: only the shape of it, in minutes.")
    ] = False,
    runs: Annotated[int | None, typer.Option(help=f"Seeds per cell, else {NODE_RUNS}.")] = None,
    datasets: Annotated[str, typer.Option(help="Names, by commas.")] = ",".join(NODE_DATASETS),
    backbones: Annotated[
        str | None,
        typer.Option(help=f"Names, by commas, else all; tuned: {','.join(TUNED_BACKBONES)}."),
    ] = None,
    activations: Annotated[str, typer.Option(help="Names, by commas.")] = ",".join(ACTIVATIONS),
    out: Annotated[
        Path | None,
        typer.Option(help=f"Record, else {default_record('node', False)} or tuned.jsonl there."),
    ] = None,
    device: Device = "auto",
    data: Root = None,
    seconds: Annotated[float | None, typer.Option(help="Begin no batch after so many.")] = None,
    engine: Engine = "local",
) -> None:
    """The main table, node classification: ours beside the paper's."""
    with one_sentence(INTERRUPTED):
        check_tuned_only(tuned, quick=quick)
        if backbones is None:
            backbones = ",".join(TUNED_BACKBONES if tuned else BACKBONES)
        lists = [names(datasets), names(backbones), names(activations)]
        record = out or default_record("tuned" if tuned else "node", quick)
        number = runs if runs is not None else QUICK_RUNS if quick else NODE_RUNS
        with show.progress_bar() as progress:
            request = Request(number, record, quick, device, data, seconds, progress, engine)
            configs = tuned_cells(request, *lists) if tuned else node_table(*lists)
            results = train_missing(configs, request)
        sentence = standing(len(results), len(configs) * number, record)
        if tuned and has_choice(record):
            show_page(render_tuned(record), sentence)
            return
        screen = show.console()
        if results and not tuned:
            rows = tables.node_rows(results)
            for table in show.node_tables(rows):
                screen.print(table, "")
            screen.print(show.NODE_NOTES, tables.caution(rows), divergence.sentence(results), "\n")
            if counts := tables.tallies(results):
                screen.print(show.tally_table(counts), "")
            screen.print(tables.protocol_check(results).sentence)
        screen.print(sentence)


@reproduce_app.command("graph", epilog="Example: graphrelu reproduce graph --quick")
def graph(
    datasets: Annotated[str, typer.Option(help="Names, by commas.")] = ",".join(GRAPH_DATASETS),
    backbones: Annotated[str, typer.Option(help="Names, by commas.")] = ",".join(GRAPH_BACKBONES),
    activations: Annotated[str, typer.Option(help="Names, by commas.")] = ",".join(ACTIVATIONS),
    hidden: Annotated[str, typer.Option(help="Hidden units to choose from.")] = ",".join(
        map(str, GRAPH_HIDDEN)
    ),
    layers: Annotated[str, typer.Option(help="Layers to choose from.")] = ",".join(
        map(str, GRAPH_LAYERS)
    ),
    protocols: Annotated[
        str, typer.Option(help="folds (the paper's), gin_folds (the GIN paper's).")
    ] = ",".join(FOLD_SPLITS),
    repeats: Annotated[
        int, typer.Option(help="More fold assignments, of what is chosen.")
    ] = REPEATS,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only the shape of the result, in minutes.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help=f"Record, else {default_record('graph', False)}.")
    ] = None,
    device: Device = "auto",
    data: Root = None,
    seconds: Annotated[float | None, typer.Option(help="Begin no batch after so many.")] = None,
    engine: Engine = "local",
) -> None:
    """Graph classification: a grid, and what it chooses on more folds; ours beside the paper's."""
    with one_sentence(INTERRUPTED):
        grid = typed_grid(datasets, backbones, activations, hidden, layers, protocols, repeats)
        record = out or default_record("graph", quick)
        with show.progress_bar() as progress:
            request = Request(grid.runs, record, quick, device, data, seconds, progress, engine)
            sentence = collect_graphs(grid, request)
        if has_table(record):
            show_page(render_graphs(record), sentence)
        else:
            show.console().print(sentence)


def _add_experiment(name: str, what: str) -> None:
    @reproduce_app.command(
        name,
        help=f"{what[0].upper()}{what[1:]}.",
        epilog=f"Example: graphrelu reproduce {name} --quick",
    )
    def command(
        quick: Annotated[
            bool, typer.Option("--quick", help="Only the shape of the result, in minutes.")
        ] = False,
        runs: Annotated[int | None, typer.Option(help="Seeds or repetitions.")] = None,
        out: Annotated[
            Path | None,
            typer.Option(help=f"Record, else {default_record(name, False)}."),
        ] = None,
        device: Device = "auto",
        data: Root = None,
        seconds: Annotated[float | None, typer.Option(help="Begin nothing after so many.")] = None,
        engine: Engine = "local",
    ) -> None:
        with one_sentence(INTERRUPTED):
            chosen = experiment(name)
            record = out or default_record(name, quick)
            number = runs if runs is not None else chosen.quick_runs if quick else chosen.runs
            with show.progress_bar() as progress:
                request = Request(number, record, quick, device, data, seconds, progress, engine)
                sentence = chosen.collect(request)
            show_page(chosen.render(record), sentence)


for name, what in EXPERIMENTS.items():
    _add_experiment(name, what)
