"""``graphrelu reproduce``: one command for each experiment."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from graphrelu.lab.cli import COMMANDS, Device, Root, names
from graphrelu.lab.errors import INTERRUPTED, one_sentence
from graphrelu.lab.render import console, markdown, progress_bar
from graphrelu.lab.reproduce.table import Request

# Name -> what it is; the module of that name is imported when the experiment is started.
EXPERIMENTS = {
    "node": "the main table: node classification, beside the paper's numbers",
    "graph": "graph classification: a grid of settings, the chosen ones on more folds",
    "ablation": "the ablation tables: GReLU's variants on Flickr, with GCN",
    "segments": "the effect of the number of segments K on the citation graphs, with GCN",
    "deep": "networks as people train them: 4 and 10 layers, norm, skips, all labels",
    "molecules": "sets of molecules: published networks and plain ones, by activation",
    "sets": "why GReLU helps on sets of graphs: generated sets, nodes, layers and epochs",
    "strong": "GCN, SAGE and GAT with published settings, tuned for ReLU on each graph",
}
EXAMPLE = "graphrelu reproduce node --datasets cora --backbones gcn --runs 30"
RESULTS = Path("results")

app = typer.Typer(add_completion=False, rich_markup_mode=None)
experiments = typer.Typer(
    help=COMMANDS["reproduce"],
    epilog=f"Example: {EXAMPLE}",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(experiments, name="reproduce")


def experiment(name: str) -> Any:
    """The experiment of that name: a table of runs."""
    return import_module(f"graphrelu.lab.reproduce.{name}").TABLE


def _option(told: str) -> Any:
    return typer.Option(help=told)


LISTED = "Names, separated by commas; else all of the table."


def _command(name: str) -> Callable[..., None]:
    def run(
        runs: Annotated[int | None, _option("How many seeds.")] = None,
        datasets: Annotated[str | None, _option(LISTED)] = None,
        backbones: Annotated[str | None, _option(LISTED)] = None,
        activations: Annotated[str | None, _option(LISTED)] = None,
        quick: Annotated[
            bool, typer.Option("--quick", help="A small version on embedded graphs, in minutes.")
        ] = False,
        out: Annotated[
            Path | None, _option("Record (.jsonl) to continue; else results/NAME.jsonl.")
        ] = None,
        render: Annotated[
            bool, typer.Option("--render", help="Train nothing; write page and figures.")
        ] = False,
        device: Device = "auto",
        data: Root = None,
        seconds: Annotated[
            float | None, _option("Stop starting new runs after this many seconds.")
        ] = None,
        engine: Annotated[
            str, _option("local: this process; N: N processes; ray: a cluster.")
        ] = "local",
        prepare: Annotated[
            Path | None, _option("Train nothing; write the missing runs to this file (.pt).")
        ] = None,
    ) -> None:
        with one_sentence(INTERRUPTED):
            own, said = experiment(name), ""
            if runs is None:
                runs = own.quick_runs if quick else own.runs
            record = out or (RESULTS / "quick" if quick else RESULTS) / f"{name}.jsonl"
            wanted = {"dataset": datasets, "backbone": backbones, "activation": activations}
            only = {axis: names(text) for axis, text in wanted.items() if text is not None}
            with progress_bar() as progress:
                request = Request(
                    *(runs, record, quick, only, device, data, seconds),
                    progress=progress,
                    engine=engine,
                    prepare=prepare,
                )
                if not render:
                    said = own.collect(request)
            screen, written = console(), list[Path]()
            if render or own.rows(own.on_record(record)):  # else there is nothing to show yet
                written = own.render(record)
                screen.print(markdown(written[0].read_text(encoding="utf-8")))
            if said:
                screen.print(said, soft_wrap=True)
            if written:
                screen.print(f"Written: {', '.join(map(str, written))}.")

    return run


for _name, _what in EXPERIMENTS.items():
    _example = EXAMPLE if _name == "node" else f"graphrelu reproduce {_name} --quick"
    experiments.command(
        _name, help=f"{_what[0].upper()}{_what[1:]}.", epilog=f"Example: {_example}"
    )(_command(_name))
