"""Which context should slopes and intercepts see: the graph, a node's neighbourhood, or both?

    alpha_nc, beta_nc = gamma_n tanh(s (w_c e_c + u_c (A X)_nc + b_c))

GReLU has u = 0: on a single graph its context is one vector. With A = D^-1/2 A D^-1/2 each channel
of a node sees that channel among its neighbours, with 2KC more parameters or (w = 0) as many, but
at the cost of a sparse product over all channels, O(C |E|).

What is decided by which runs was fixed before the first of them:

1. The candidates are *neighbourhood* (w = 0) and *both*, each with node weights gamma and without
   (gamma = 1). Whichever has the highest mean lead over ReLU in validation scores in the cells of
   `TUNING` is chosen.
2. It is confirmed, once, in the cells of `HELD_OUT`. It becomes an option of GReLU if there, in the
   median over the cells, it beats today's form and the control ReLU(x + tanh(s u) * A X), which has
   the path to the neighbours but no slopes, by more than 0.3 points each (% of ReLU's error where
   the score is one), and if it is in no cell significantly worse than ReLU (Holm over the cells).

`python -m scripts.context_study RECORD.jsonl tune|confirm` trains what is missing, and
`python -m scripts.context_study RECORD.jsonl page` writes the page beside the record. Runs of the
same configurations in other records of `results/` count, and are not trained again. What
`--prepare` writes is trained elsewhere by `python -m scripts.context_forms`.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

import scripts.context_forms  # noqa: F401 -- the activations of the study
from graphrelu.lab.engine import load_dataset
from graphrelu.lab.record.config import ERRORS, FEW_LABELS, Config
from graphrelu.lab.record.machine import write_text
from graphrelu.lab.record.recipes import modern, on_sets, recipe
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import label, marked
from graphrelu.lab.reproduce import deep, files, molecules
from graphrelu.lab.reproduce.table import Request, train_missing
from graphrelu.lab.stats import Decision, Scores, compared, relative_to_relu, splits_of

SEEDS = range(10)
MARGIN = 0.3
RESULTS = Path(__file__).parents[1] / "results"
KNOWN = [RESULTS / f"{name}.jsonl" for name in ("deep", "node", "structure", "molecules")]


FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "ReLU": ("relu", {}),
    "PReLU": ("prelu", {}),
    "GELU": ("gelu", {}),
    "GReLU": ("grelu", {}),
    "GReLU-F": ("grelu", {"node_wise": False}),
    "neighbourhood": ("context-grelu", {"context": "neighbourhood", "node_wise": False}),
    "neighbourhood, node weights": ("context-grelu", {"context": "neighbourhood"}),
    "both": ("context-grelu", {"context": "both", "node_wise": False}),
    "both, node weights": ("context-grelu", {"context": "both"}),
    "control": ("neighbour-relu", {}),
}
CANDIDATES = tuple(name for name, (module, _) in FORMS.items() if module == "context-grelu")
CONFIRMED = ("ReLU", "PReLU", "GELU", "GReLU", "control")

# Few labels: the paper's networks of two layers. All labels: four layers with LayerNorm and skips.
GENERATED = (
    "csbm:homophily=0.0,signal=1.0,shift=1,seed=105",
    "csbm:homophily=0.5,signal=1.0,shift=1,seed=107",
)
FEW = ("cora", "citeseer", "pubmed", *GENERATED)
SETS = ("esol", "lipo")
TUNING = ("squirrel", "minesweeper", "photo", "cora", "citeseer")
HELD_OUT = ("chameleon", "tolokers", "actor", "computers", "cs", "pubmed", *GENERATED, *SETS)
BACKBONES = ("gcn", "sage")


def config(dataset: str, backbone: str, name: str) -> Config:
    """A cell's configuration with one of the forms."""
    activation, options = FORMS[name]
    if dataset in FEW and activation == "context-grelu":
        options = FEW_LABELS | options  # as GReLU has it there
    if dataset in FEW:
        return recipe(dataset, backbone, activation, activation_options=options)
    if dataset in SETS:
        rest: dict[str, Any] = {"split": "random", "metric": "mae"}
        return on_sets(dataset, backbone, activation, activation_options=options, **rest)
    split, metric = deep.GRAPHS[dataset]
    rest = {"split": split, "metric": metric, "patience": deep.PATIENCE}
    return modern(dataset, backbone, activation, activation_options=options, **rest)


def wanted(datasets: Iterable[str], names: Iterable[str]) -> dict[tuple[str, str, str], Config]:
    """The configurations by graph, backbone and form."""
    return {place: config(*place) for place in product(datasets, BACKBONES, names)}


Runs = dict[tuple[str, str], dict[str, dict[int, Result]]]  # graph, backbone -> form -> seed


def on_record(record: Path) -> list[Result]:
    return [result for path in (*KNOWN, record) for result in Record(path).read()]


def found(results: Iterable[Result], datasets: Sequence[str]) -> Runs:
    """The runs of some graphs."""
    places = {own.key(): place for place, own in wanted(datasets, FORMS).items()}
    runs: Runs = {}
    for result in results:
        if (place := places.get(result.config.key())) is not None and result.seed in SEEDS:
            runs.setdefault(place[:2], {}).setdefault(place[2], {})[result.seed] = result
    return runs


def leads(runs: Runs, name: str, over: str, field: str = "score") -> dict[Any, Decision]:
    """The lead of a form in each cell, as one family; errors are in percent of ReLU's."""
    pairs, splits = {}, {}
    for cell, own in runs.items():
        if not {name, over, "ReLU"} <= own.keys():
            continue
        first = next(iter(own["ReLU"].values()))
        scores: Mapping[str, Scores] = {
            form: {seed: getattr(run, field) for seed, run in by_seed.items()}
            for form, by_seed in own.items()
        }
        if first.config.metric in ERRORS:
            reference = scores["ReLU"]
            scores = relative_to_relu({"relu": reference, **scores})
        pairs[cell], splits[cell] = (
            (scores[name], scores[over]),
            splits_of(first.config, first.note),
        )
    return compared(pairs, splits, MARGIN)


def chosen(runs: Runs) -> tuple[str, dict[str, float]]:
    """The candidate with the highest mean lead over ReLU in validation scores, and all leads."""
    means = {}
    for name in FORMS:
        own = leads(runs, name, "ReLU", "val_score") if name != "ReLU" else {}
        if own:
            means[name] = fmean(lead.difference for lead in own.values())
    candidates = {name: means[name] for name in CANDIDATES if name in means}
    return max(candidates, key=lambda name: candidates[name]), means


def load(config: Config, root: str | Path | None) -> Any:
    return molecules.load(config, root) if config.dataset in SETS else load_dataset(config, root)


def page(record: Path) -> str:
    results = on_record(record)
    tuning, held_out = found(results, TUNING), found(results, HELD_OUT)
    choice, means = chosen(tuning)
    lines = [
        (f"**{name}**" if name == choice else name, f"{mean:+.2f}") for name, mean in means.items()
    ]
    parts = [
        "# Which context: the whole graph, or a node's neighbourhood?\n",
        files.provenance(Record(record).read(), record),
        "ReLU, PReLU, GELU and GReLU are mostly those of other records, with the same settings.\n",
        __doc__.partition("`python -m")[0].split("\n", 2)[2].strip() + "\n",
        "## Chosen on validation\n",
        "Mean leads over ReLU in validation scores over the tuning cells, in points.\n",
        files.table(("form", "mean lead"), lines, numbers=1),
        cells_table("The tuning cells, test scores", tuning, FORMS),
    ]
    if held_out:
        parts.append(cells_table("Confirmed on held-out cells", held_out, (*CONFIRMED, choice)))
        parts.append(outcome(held_out, choice))
    return "\n".join(parts)


def cells_table(title: str, runs: Runs, names: Iterable[str]) -> str:
    others = [name for name in names if name != "ReLU"]
    by_name = {name: leads(runs, name, "ReLU") for name in others}
    lines = []
    for cell, own in runs.items():
        if "ReLU" in own:
            mean = fmean(abs(run.score) for run in own["ReLU"].values())
            is_error = next(iter(own["ReLU"].values())).config.metric in ERRORS
            score = f"{mean:.3f}" if is_error else f"{100 * mean:.1f}"
            told = (marked(by_name[name].get(cell)) for name in others)
            lines.append((label(cell[0]), label(cell[1]), score, *told))
    return f"## {title}\n\n{files.table(('graph', 'backbone', 'ReLU', *others), lines, numbers=2)}"


def outcome(runs: Runs, choice: str) -> str:
    """What the rule says."""
    told = []
    for rival in ("GReLU", "control", "ReLU"):
        own = leads(runs, choice, rival)
        middle = median(lead.difference for lead in own.values())
        worse = [" ".join(map(label, cell)) for cell, one in own.items() if one.outcome == "worse"]
        told.append((rival, f"{middle:+.2f}", str(len(own)), ", ".join(worse) or "none"))
    head = ("over", "median lead", "cells", "significantly worse in")
    return f"## The rule\n\n{files.table(head, told, numbers=1)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("what", choices=("tune", "confirm", "page"))
    parser.add_argument("--datasets", nargs="*", help="only these")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--engine", default="local")
    parser.add_argument("--prepare", type=Path)
    options = parser.parse_args()
    if options.what == "page":
        write_text(options.record.with_suffix(".md"), page(options.record))
        return
    results = on_record(options.record)
    if options.what == "tune":
        runs = wanted(options.datasets or TUNING, FORMS)
    else:
        choice, _ = chosen(found(results, TUNING))
        runs = wanted(options.datasets or HELD_OUT, (*CONFIRMED, choice))
    request = Request(
        len(SEEDS),
        options.record,
        seconds=options.seconds,
        engine=options.engine,
        prepare=options.prepare,
    )
    known: dict[str, set[int]] = {}
    for path in KNOWN:
        for result in Record(path).read():
            known.setdefault(result.config.key(), set()).add(result.seed)
    missing = [own for own in runs.values() if not set(SEEDS) <= known.get(own.key(), set())]
    done = train_missing(dict.fromkeys(missing, SEEDS), request, load)
    print(json.dumps({"finished": done[0], "of": done[1]}))


if __name__ == "__main__":
    main()
