"""A few mutated files of each kind; ``make fuzz-files`` tries far more, and learns from them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

FILES = 60


@pytest.mark.parametrize("kind", TARGETS)
def test_mutated_files(kind: str, tmp_path: Path) -> None:
    target, chance = TARGETS[kind], random.Random(7)
    path = (tmp_path / "file").with_suffix(target.ending)
    seeds = list(target.seeds())
    for content in seeds:
        path.write_bytes(content)
        target.read(path)

    def flip(part: bytes) -> bytes:
        changed = bytearray(part or b"x")
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        return bytes(changed)

    for number in range(FILES):
        path.write_bytes(target.mutate(seeds[number % len(seeds)], flip, chance))
        target.read(path)
