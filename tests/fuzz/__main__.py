"""``python -m tests.fuzz KIND [--seconds N]``: mutated files of a kind, for so long."""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["graphrelu.lab", "zipfile", "json", "numpy.lib"]):
    import torch

    from tests.fuzz.targets import TARGETS, watch

MOST_MEMORY = 3_000  # MiB of the process; what the seeds take is below 1,000
LONGEST = 20  # seconds for one file


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--folder", type=Path, default=Path(".fuzz"), help="for what is found")
    arguments = parser.parse_args()
    target = TARGETS[arguments.kind]
    torch.set_num_threads(1)
    folder = arguments.folder / arguments.kind
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(target.seeds()):
        (corpus / f"seed{number}").write_bytes(content)
    file = (folder / "file").with_suffix(target.ending)

    def read(content: bytes) -> None:
        file.write_bytes(content)
        target.read(file)

    def mutate(content: bytes, largest: int, seed: int) -> bytes:
        def anyhow(part: bytes) -> bytes:
            return atheris.Mutate(part, max(len(part) + 64, 64))

        return target.mutate(content, anyhow, random.Random(seed))[:largest]

    options = [f"-max_total_time={arguments.seconds}", f"-rss_limit_mb={MOST_MEMORY}"]
    options += [f"-timeout={LONGEST}", "-max_len=65536", "-print_final_stats=1"]
    options += [f"-artifact_prefix={folder}/", str(corpus)]
    warnings.simplefilter("error", category=UserWarning)  # a second line on the screen
    watch()
    atheris.Setup([sys.argv[0], *options], read, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
