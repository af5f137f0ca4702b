"""The configuration of a run: everything that determines the run except the seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from graphrelu.functional import DEFAULT
from graphrelu.lab.data.splits import GraphSplit, SetSplit

Option: TypeAlias = str | int | float | bool | None
Options: TypeAlias = tuple[tuple[str, Option], ...]

# The GIN paper's, by which one epoch is chosen for all folds of an assignment.
GinSplit = Literal["gin_folds", "gin_paper"]
SplitName = Literal[GraphSplit, SetSplit, GinSplit]
GIN_SPLITS = get_args(GinSplit)
FOLD_SPLITS = ("folds", *GIN_SPLITS)
Metric = Literal["accuracy", "f1", "rocauc", "ap", "mae", "rmse", "r2"]
ERRORS = ("mae", "rmse")  # negative on record, so that a higher score is always better
Dtype = Literal["float32", "float64"]
Select = Literal["loss", "score"]
Progress = Literal["score", "either"]
# Of GReLU's calibrated form; a record spells them out, so that no default is taken for another.
CONSTANTS = {name: getattr(DEFAULT, name) for name in ("scale", "temperature", "dropout")}
FEW_LABELS = {"dropout": 0.2}  # in the paper's networks

OPTIONS = ("activation_options", "backbone_options", "training_options")
LIMITS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("dataset", "backbone", "activation"), ("be a name", bool)),
    **dict.fromkeys(
        ("hidden", "patience", "weight_decay"), ("be zero or more", lambda value: value >= 0)
    ),
    "epochs": ("be one or more", lambda value: value >= 1),
    "lr": ("be positive", lambda value: value > 0),
    "dropout": ("lie in [0, 1)", lambda value: 0 <= value < 1),
}
NAMES = {str: "a name", int: "a whole number", float: "a finite number", bool: "true or false"}
# Left out of records and keys, which are older, as long as they have these values.
LATER: dict[str, Any] = {"select": "loss", "progress": "score"}
FORMER = {"feature_scale": 1.0}  # a field once, in the keys of cells

LARGEST = 1e150  # squares, differences and ratios of such numbers are still finite
types_of = cache(get_type_hints)  # the declared type of each field of a class


@dataclass(frozen=True)
class Config:
    """One cell of a table. Options are pairs of a name and a plain value, sorted by name.

    ``hidden`` is 0 only where there is no hidden layer, with the activation ``"none"``; for GAT on
    a single graph it is the width of one head. The network is the paper's, or deep where
    ``backbone_options`` name its ``norm``: :mod:`graphrelu.lab.models.backbones` for single graphs,
    :class:`~graphrelu.lab.models.graph_networks.Network` for sets of graphs, whose mini-batches and
    learning rate are ``training_options``. The best epoch is that of the lowest validation loss or,
    by ``select``, of the highest validation score. ``patience`` is 0 where training never stops
    early; where the score selects, it is the number of epochs without ``progress``: a better score,
    or ``"either"`` a better score or a lower loss.
    """

    dataset: str
    backbone: str
    activation: str
    hidden: int
    epochs: int
    patience: int
    lr: float
    weight_decay: float
    dropout: float
    normalize_features: bool
    activation_options: Options = ()
    backbone_options: Options = ()
    split: SplitName = "random"
    metric: Metric = "accuracy"
    dtype: Dtype = "float32"
    select: Select = "loss"
    progress: Progress = "score"
    training_options: Options = ()

    def __post_init__(self) -> None:
        for name in OPTIONS:
            object.__setattr__(self, name, _sorted_options(name, getattr(self, name)))
        for name, kind in types_of(Config).items():
            value = getattr(self, name)
            if name not in OPTIONS:
                rule = NAMES.get(kind) or f"one of {', '.join(get_args(kind))}"
                _require(fits(kind, value), f"{name} must be {rule}", value)
            if kind is float:  # 1 and 1.0 are the same run, so they get the same key
                object.__setattr__(self, name, float(value))
        for name, (rule, holds) in LIMITS.items():
            _require(holds(getattr(self, name)), f"{name} must {rule}", getattr(self, name))
        _require(self.hidden > 0 or self.activation == "none", "hidden must be positive", 0)
        if self.patience == 0 or self.select == "loss":  # runs that differ in nothing have one key
            object.__setattr__(self, "progress", LATER["progress"])

    @property
    def is_deep(self) -> bool:
        """Whether the network is another than the paper's."""
        return "norm" in dict(self.backbone_options)

    @property
    def told_options(self) -> Options:
        """The activation's options, without the constants of GReLU that the protocol sets."""
        few_labels = self.split not in FOLD_SPLITS and not self.is_deep
        usual = CONSTANTS | FEW_LABELS if few_labels else CONSTANTS
        return tuple(pair for pair in self.activation_options if usual.get(pair[0]) != pair[1])

    @property
    def title(self) -> str:
        """The cell in a few words, the activation's options included."""
        words = f"{self.dataset} {self.backbone} {self.activation}"
        if layers := dict(self.backbone_options).get("layers"):
            words += f" {self.hidden} x {layers}"
        if self.split in FOLD_SPLITS:
            words += f" {self.split}"
        if dict(self.backbone_options).get("virtual_node"):
            words += ", virtual node"
        if self.training_options:  # tables choose from several
            words += f", dropout {self.dropout:g}"
        return words + self._told

    @property
    def shared_settings(self) -> dict[str, Any]:
        """The settings that must be the same for every activation that is compared with this."""
        settings = FORMER | LATER | self.to_dict()
        return {name: settings[name] for name in settings if not name.startswith("activation")}

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, without what is :data:`LATER`; the options become dictionaries."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        plain |= {name: dict(plain[name]) for name in OPTIONS}
        later = LATER | {"training_options": {}}
        return {n: value for n, value in plain.items() if n not in later or value != later[n]}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Config:
        """The inverse of :meth:`to_dict`; fields with a default may be missing."""
        unknown = set(plain) - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(f"A configuration has no field {sorted(unknown)[0]!r}.")
        changed = dict(plain)
        for name in OPTIONS:
            options = plain.get(name, {})
            _require(isinstance(options, Mapping), f"{name} must be values by name", options)
            # Up to version 0.2 gamma_max was an argument of GReLU, and spelled out, too.
            changed[name] = tuple(pair for pair in options.items() if pair[0] != "gamma_max")
        try:
            return cls(**changed)
        except TypeError as error:
            raise ValueError(f"The configuration is incomplete ({error}).") from error

    @property
    def variant(self) -> str:
        """The activation with the options that tell it from others: ``grelu (K=3)``."""
        return self.activation + self._told

    @property
    def _told(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.told_options)
        return f" ({options})" if options else ""

    def key(self) -> str:
        """Twelve hexadecimal digits that are the same everywhere for the same configuration."""
        return _digits(self.to_dict())

    def cell_key(self) -> str:
        """The same for all activations that are compared with each other."""
        return _digits(self.shared_settings)


def _digits(plain: Mapping[str, Any]) -> str:
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _require(holds: bool, rule: str, value: Any) -> None:
    if not holds:
        raise ValueError(f"{rule}, not {value!r}.")


def _sorted_options(name: str, pairs: Any) -> Options:
    try:
        options = dict(pairs)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be pairs of a name and a value, not {pairs!r}.") from error
    for key, value in options.items():
        _require(fits(str, key), f"{name} must have names", key)
        plain = value is None or any(fits(kind, value) for kind in (bool, str, float))
        _require(plain, f"{name}: {key} must be a plain value", value)
    return tuple(sorted(options.items()))


def fits(kind: Any, value: Any) -> bool:
    """Whether a plain value is of a declared type, and can be computed with and written down."""
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if isinstance(value, bool) or kind is bool:
        return kind is bool and isinstance(value, bool)
    if kind is float:
        return isinstance(value, (int, float)) and -LARGEST <= value <= LARGEST
    if kind is int:  # of 64 bits at most
        return isinstance(value, int) and abs(value) < 2**63
    # Without lone surrogates, which no file takes.
    return isinstance(value, str) and value.encode(errors="replace").decode() == value
