"""Mutation testing: of small changes to the code, how many do its tests notice? make mutants.

mutmut writes the mutants, all into one copy of each file; the name of the mutant at work is set at
run time. The tests are collected once, and each mutant runs them in a fork of that process, up to
the first test that fails. Surviving mutants are shown as differences.
"""

import argparse
import difflib
import os
import random
import shutil
import signal
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from mutmut.mutation.file_mutation import MutatedFile, mutate_file_contents
from mutmut.mutation.trampoline import set_mutant_under_test

ROOT = Path(__file__).parents[1]
COPIED = ("graphrelu", "tests", "docs", "pyproject.toml")
GRELU_TESTS = (
    "tests/test_dropout.py",
    "tests/test_gradients.py",
    "tests/test_grelu.py",
    "tests/test_errors.py",
    "tests/test_sweep.py",
)
# Without what takes long, and without what does not run in a fork of a mutated module.
QUICK = "not compile and not threads and not random"
# The tests of each file.
TESTS = {
    "graphrelu/functional.py": (
        "tests/test_functional.py",
        "tests/test_graph.py",
        *GRELU_TESTS,
    ),
    "graphrelu/graph.py": ("tests/test_graph.py", *GRELU_TESTS),
    "graphrelu/grelu.py": GRELU_TESTS,
    # Not conversion.py: it reads the stack of calls, to which mutmut adds its own.
    "graphrelu/lab/stats.py": ("tests/lab/test_stats.py",),
}


class Mutants:
    """A pytest plugin that runs the collected tests once per mutant instead of once."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.survivors: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        start = time.perf_counter()
        if session.testsfailed or _is_noticed(session, "", limit=0):
            raise session.Failed("The tests fail without a mutant.")
        limit = 30 + int(10 * (time.perf_counter() - start))  # seconds, for an endless loop
        self.survivors = [name for name in self.names if not _is_noticed(session, name, limit)]
        return True


def _is_noticed(session: pytest.Session, mutant: str, limit: int) -> bool:
    """Whether a test fails, or takes longer than the limit, in a fork of this process."""
    process = os.fork()
    if process > 0:
        return os.waitpid(process, 0)[1] != 0
    signal.alarm(limit)
    set_mutant_under_test(mutant)
    session.config.pluginmanager.unregister(name="terminalreporter")
    try:
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                os._exit(1)
    except BaseException:
        os._exit(1)
    os._exit(0)


def difference(mutated: MutatedFile, name: str) -> str:
    """What a mutant changes, as a diff without context."""
    original = name.rpartition("__mutmut_")[0] + "__mutmut_orig"
    lines, sources = mutated.code.splitlines(), []
    for function in (original, name):
        span: Any = mutated.line_span_by_function_name[function]
        source = textwrap.dedent("\n".join(lines[span.start - 1 : span.end]))
        sources.append(source.replace(function, "").splitlines())
    changes = difflib.unified_diff(*sources, n=0, lineterm="")
    return "\n".join(line for line in changes if not line.startswith(("---", "+++", "@@")))


def survivors(file: str, names: list[str]) -> list[str]:
    """The mutants of a file that its tests do not notice; they run in the current folder."""
    plugin = Mutants(names)
    without = [f"-pno:{name}" for name in ("xdist", "cacheprovider", "faulthandler")]
    code = pytest.main(["-k", QUICK, *without, *TESTS[file]], plugins=[plugin])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(int(code))
    return plugin.survivors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", default=list(TESTS), metavar="FILE")
    parser.add_argument("--sample", type=int, default=60, help="mutants per file; 0 is all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--least", type=float, default=90, help="per cent that must be noticed")
    arguments = parser.parse_args()
    if unknown := set(arguments.files) - set(TESTS):
        parser.error(f"FILE must be one of {', '.join(TESTS)}, got {', '.join(unknown)}.")

    os.chdir(ROOT)
    mutated = {file: mutate_file_contents(file, Path(file).read_text()) for file in arguments.files}
    noticed = total = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            copy = shutil.copytree if Path(name).is_dir() else shutil.copy
            copy(name, Path(folder) / name)
        os.chdir(folder)
        sys.path.insert(0, folder)
        for file, result in mutated.items():
            Path(file).write_text(result.code)
        for file, result in mutated.items():
            names = list(result.mutant_names)
            if 0 < arguments.sample < len(names):
                names = random.Random(arguments.seed).sample(names, arguments.sample)
            module = file.removesuffix(".py").replace("/", ".")
            missed = survivors(file, [f"{module}.{name}" for name in names])
            for mutant in missed:
                print(f"\n{mutant}\n{difference(result, mutant.rpartition('.')[2])}")
            print(f"\n{file}: {len(names) - len(missed)} of {len(names)} noticed", flush=True)
            noticed, total = noticed + len(names) - len(missed), total + len(names)
    share = 100 * noticed / total
    print(f"together: {noticed} of {total} noticed ({share:.1f} %)")
    return int(share < arguments.least)


if __name__ == "__main__":
    sys.exit(main())
