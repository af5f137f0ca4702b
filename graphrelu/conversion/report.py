"""What a conversion did, to be printed."""

from typing import NamedTuple


class Replacement(NamedTuple):
    """One place of a converted model where an activation is called."""

    name: str
    before: str
    after: str  # empty where the activation stays
    reason: str = ""  # why it stays

    def __str__(self) -> str:
        if self.after:
            return f"{self.name}: {self.before} -> {self.after}"
        return f"{self.name}: {self.before} stays: {self.reason}"


class Replacements(list[Replacement]):
    """All of them; printed, one in a line."""

    @property
    def changed(self) -> list[Replacement]:
        return [replacement for replacement in self if replacement.after]

    @property
    def left(self) -> list[Replacement]:
        return [replacement for replacement in self if not replacement.after]

    def __str__(self) -> str:
        return "\n".join(map(str, self))
