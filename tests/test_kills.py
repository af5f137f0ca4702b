"""A few of the kills of ``make kills``: the tables are those of a process that nobody disturbed."""

import subprocess
import sys

from tests.helpers import ROOT


def test_tables_survive_kills() -> None:
    command = [sys.executable, "-W", "ignore::FutureWarning", "-m", "scripts.kills", "--kills", "4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("4 kills (SIGKILL 2, SIGTERM 2), ")
