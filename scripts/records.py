"""Makes the records of `results/`, several experiments at once, in pieces of any length.

`python scripts/records.py --seconds 500` goes on with every experiment where its record ends, and
so does the same command again. Small models do not fill a GPU: experiments that share one finish
sooner than one after the other. Those that measure time (`runtime`, `complexity`) are not here.

`python scripts/records.py --forget grelu` takes an activation's runs out of the records first, as
when the constants of GReLU's default have changed, which a record does not name.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CITATION, SOCIAL = "cora,citeseer,pubmed", "blogcatalog,flickr"
# Name -> arguments of `graphrelu reproduce`; the longest first.
EXPERIMENTS: dict[str, list[str]] = {
    "graph": ["graph", "--layers", "3", "--hidden", "32,64"],
    "tuned": ["node", "--tuned"],
    "node on citation graphs": ["node", "--datasets", CITATION, "--runs", "100"],
    "node on social graphs": ["node", "--datasets", SOCIAL, "--runs", "30"],
    "scale": ["scale"],
    "structure": ["structure"],
    "ablation": ["ablation"],
    "segments": ["segments"],
    "inspect": ["inspect"],
}


def record_of(arguments: list[str], folder: Path) -> Path:
    name = "tuned" if "--tuned" in arguments else arguments[0]
    return folder / f"{name}.jsonl"


def forget(record: Path, activations: Iterable[str]) -> int:
    """Takes their runs, and all notes of work in progress, out of a record; returns how many."""
    lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
    events = [json.loads(line) for line in lines]
    kept = [
        line
        for line, event in zip(lines, events, strict=True)
        if event["event"] == "finished" and event["config"]["activation"] not in activations
    ]
    part = record.with_suffix(".part")
    part.write_text("".join(kept), encoding="utf-8")
    part.replace(record)
    return len(lines) - len(kept)


def run(name: str, folder: Path, deadline: float) -> int:
    """One experiment, as far as the time goes; returns its exit code."""
    left = deadline - time.monotonic()
    if left <= 0:
        print(f"{name}: no time left", flush=True)
        return 0
    arguments = EXPERIMENTS[name]
    command = [sys.executable, "-m", "graphrelu.lab.reproduce", *arguments]
    command += ["--seconds", f"{left:.0f}", "--out", str(record_of(arguments, folder))]
    done = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    last = done.stdout.strip().splitlines()[-1:] or [""]
    print(f"{name}: {last[0]}", flush=True)
    return done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3_600, help="for all (default: 3600)")
    parser.add_argument("--processes", type=int, default=4, help="at once (default: 4)")
    parser.add_argument("--folder", type=Path, default=Path("results"), help="of the records")
    parser.add_argument("--only", help="names, by commas (default: all)")
    parser.add_argument("--forget", help="activations, by commas; nothing is trained then")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(EXPERIMENTS)
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"--only must be some of {', '.join(EXPERIMENTS)}, got {unknown[0]!r}.")
    if options.forget:
        for record in sorted({record_of(EXPERIMENTS[name], options.folder) for name in names}):
            if record.exists():
                print(f"{record}: {forget(record, options.forget.split(','))} lines less")
        return 0
    deadline = time.monotonic() + options.seconds
    with ThreadPoolExecutor(options.processes) as pool:
        codes = list(pool.map(lambda name: run(name, options.folder, deadline), names))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
