"""Names that people type: a misspelt one is an error with the nearest known name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def check_name(what: str, name: str, known: Iterable[str]) -> str:
    """The known name, without regard to case."""
    names = {candidate.lower(): candidate for candidate in known}
    if name.lower() in names:
        return names[name.lower()]
    listed = ", ".join(names.values()) or "none"
    raise ValueError(f"There is no {what} {name!r}{hint(name, names)}; choose from {listed}.")


def hint(name: str, known: Iterable[str]) -> str:
    """The nearest known name in brackets, or nothing."""
    names = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return f" (did you mean {names[close[0]]}?)" if close else ""
