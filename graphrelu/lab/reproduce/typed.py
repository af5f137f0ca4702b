"""Lists as they are typed on a command line."""

from __future__ import annotations

from graphrelu.lab.reproduce.graph import GraphGrid


def names(text: str) -> list[str]:
    """A list as it is typed: ``cora, citeseer``; in lower case, but for names of PyG's, and
    without repetitions."""
    typed = (name.strip() for name in text.split(","))
    cased = (name if name.startswith("pyg:") else name.lower() for name in typed)
    found = list(dict.fromkeys(name for name in cased if name))
    if not found:
        raise ValueError(f"There is no name in the list {text!r}.")
    return found


def check_tuned_only(tuned: bool, **switches: bool) -> None:
    """Raise a ``ValueError`` where a switch is given that the tuned main table alone has."""
    for name, given in switches.items():
        if given and not tuned:
            raise ValueError(f"--{name} goes with --tuned: the main table itself does not have it.")


def typed_grid(
    datasets: str,
    backbones: str,
    activations: str,
    hidden: str,
    layers: str,
    protocols: str,
    repeats: int,
) -> GraphGrid:
    """The grid of graph classification from lists as they are typed."""
    return GraphGrid(
        names(datasets),
        names(backbones),
        names(activations),
        _numbers("hidden", hidden),
        _numbers("layers", layers),
        names(protocols),
        repeats,
    )


def _numbers(what: str, text: str) -> list[int]:
    """A list of whole numbers as it is typed: ``16, 32``."""
    try:
        return [int(name) for name in names(text)]
    except ValueError:
        raise ValueError(f"{what} must be whole numbers, by commas, not {text!r}.") from None
