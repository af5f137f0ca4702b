"""From the options of a configuration, which are plain values, to the arguments of a module."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from graphrelu.calibration import Calibration
from graphrelu.lab.config import Options

CONSTANTS = tuple(field.name for field in fields(Calibration))


def module_arguments(options: Options) -> dict[str, Any]:
    """The arguments of an activation: the constants of GReLU's calibrated form, which a record
    holds one by one, become one :class:`~graphrelu.calibration.Calibration`."""
    arguments: dict[str, Any] = {name: value for name, value in options if name not in CONSTANTS}
    constants: dict[str, Any] = {name: value for name, value in options if name in CONSTANTS}
    if constants:
        arguments["calibration"] = Calibration(**constants)
    return arguments
