"""A few of the kills of ``make kills``: the tables are those of a process that nobody disturbed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_tables_survive_kills() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.kills", "--kills", "4"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "signals: SIGKILL 2, SIGTERM 2" in lines
    assert lines[-1].startswith("4 kills, ")
    assert lines[-1].endswith(", all as undisturbed.")
