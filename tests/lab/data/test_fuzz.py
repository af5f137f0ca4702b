"""A few mutated files of each kind; ``make fuzz-files`` tries far more, and learns from them."""

from __future__ import annotations

import random
import threading
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


@pytest.mark.parametrize("kind", sorted(TARGETS.keys() - {"records"}))
def test_files_that_change_while_they_are_read(kind: str, tmp_path: Path) -> None:
    """Cut short in place, and replaced, by another thread; a record that is replaced has tests of
    its own."""
    target, chance = TARGETS[kind], random.Random(7)
    path, other = ((tmp_path / name).with_suffix(target.ending) for name in ("file", "other"))
    seeds, done = list(target.seeds()), threading.Event()
    path.write_bytes(seeds[0])

    def disturb() -> None:
        while not done.is_set():
            content = chance.choice(seeds)
            path.write_bytes(content[: chance.randrange(len(content))])
            other.write_bytes(content)
            other.replace(path)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(FILES):
            target.read(path)
    finally:
        done.set()
        thread.join()
