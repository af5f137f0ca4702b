"""One record, one verdict: in the terminal, on the page, as JSON and by `report`; and every look at
it is counted."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from graphrelu.lab.record.results import Look, Record
from tests.lab import fake_engine
from tests.lab.fake_engine import invoke, make_result
from tests.lab.pages import embedded

pytestmark = pytest.mark.usefixtures("folder")
RECORD = Path("runs.jsonl")
OUT = ("--out", str(RECORD))
RIVALS = "relu,prelu,gelu,grelu"


def noisy(activation: str, seed: int) -> float:
    """About a point ahead, with a standard deviation of three."""
    spread = 0.03 * (((seed * 7919 + len(activation)) % 17) / 5 - 1.6)
    return 0.8 + (activation != "relu") * (0.01 + spread)


def compare(*arguments: Any) -> str:
    done = invoke("compare", "digits", *arguments)
    assert done.exit_code == 0, done.stderr
    return str(done.stdout)


def looks() -> list[dict[str, Any]]:
    lines = map(json.loads, RECORD.read_text().splitlines())
    return [line for line in lines if line["event"] == "looked" and line["pairs"]]


@pytest.mark.parametrize("score", [fake_engine.score, noisy])
def test_terminal_page_json_and_report_say_the_same(
    score: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_engine, "score", score)
    options = ("--activations", RIVALS, "--runs", 12, "--margin", 0.3, *OUT)
    terminal = compare(*options, "--json", "a.json", "--report", "new/a.html")
    assert "\nPage: new/a.html\n" in terminal
    assert invoke("report", RECORD, "-o", "b.html").exit_code == 0
    summary = json.loads(Path("a.json").read_text())
    pages = [embedded("new/a.html"), embedded("b.html")]
    one_line = " ".join(terminal.split())
    assert summary["verdict"] in one_line
    assert pages[0]["command"].startswith("graphrelu compare digits --backbone gcn --activations ")
    assert pages[0]["command"].endswith("--margin 0.3 --runs 12")
    for page in pages:
        assert (page["verdict"], page["next"]) == (summary["verdict"], summary["next"] or "")
        assert page["tables"][0]["note"] in one_line
        assert [row["lead"] for row in page["tables"][0]["rows"]] == [
            row["lead"] for row in pages[0]["tables"][0]["rows"]
        ]
        for shown, row in zip(summary["table"], page["tables"][0]["rows"], strict=True):
            known = {name: text for name, text in shown.items() if text != "-"}
            assert known.items() <= {"activation": row["activation"], **row["shown"]}.items()
            assert (row["lead"] or {}).get("text", "-") == shown["difference to ReLU"]
    for shown in summary["table"]:
        cells = [shown[name] for name in ("activation", "mean", "std", "runs")]
        assert " ".join([*cells, shown["difference to ReLU"], shown["verdict"]]).strip() in one_line


def test_the_printed_command_goes_on_with_the_same_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """All settings that were given are in it, and the look just taken is counted."""
    monkeypatch.setattr(fake_engine, "score", noisy)
    given = ("--activations", "relu,grelu", "--lr", 0.02, "--no-residual", "--margin", 0.1)
    for out in ((), OUT):
        shown = compare(*given, "--runs", 10, *out)
        (command,) = re.findall(r"^Continue with: (.*)$", shown, re.M)
        program, name, dataset, *words = shlex.split(command)
        assert (program, name, dataset) == ("graphrelu", "compare", "digits")
        assert "--lr 0.02" in command
        assert "--no-residual" in command
        assert "--margin 0.1" in command
        before = Record(words[words.index("--out") + 1]).read()
        assert len(before) == 2 * 10
        assert "at look 2 " in " ".join(compare(*words).split())
        after = Record(words[words.index("--out") + 1]).read()
        assert len(after) == 2 * int(words[words.index("--runs") + 1])


def test_without_out_the_runs_are_kept_in_the_cache(folder: Path, cache: Path) -> None:
    shown = compare("--runs", 10)
    assert list(folder.iterdir()) == []
    (record,) = cache.rglob("*.jsonl")
    assert shown.endswith(f"\nRuns: {record}\n")
    assert len(Record(record).read()) == 6 * 10
    compare("--runs", 10)  # of another version of the code, maybe: in a record of its own
    assert len(list(cache.rglob("*.jsonl"))) == 2


def test_a_long_run_says_so_before_it_starts() -> None:
    """A made-up epoch takes 10 ms, and 200 of them for each of six activations 12 s."""
    compare("--runs", 50, *OUT)
    assert "This may take" not in compare("--runs", 99, *OUT)  # 49 seeds are left
    shown = compare("--runs", 160, "--activations", "relu,prelu,gelu,silu,grelu,elu")
    sentence = "This may take up to 32 minutes; fewer --runs, --epochs or --activations shorten it."
    assert sentence in " ".join(shown.split())


def test_the_same_runs_are_the_same_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_engine, "score", noisy)
    options = ("--activations", "relu,grelu", *OUT)
    first = compare(*options, "--runs", 10)
    assert "at look 1 " in " ".join(first.split())
    assert compare(*options, "--runs", 10) == first
    assert "at look 2 " in " ".join(compare(*options, "--runs", 20).split())
    assert compare(*options, "--runs", 10) == first  # whatever was seen since
    assert [look["pairs"] for look in looks()] == [{"grelu": "0-9"}, {"grelu": "0-19"}]
    # Another activation is no look at GReLU against ReLU, and another margin is none at all.
    shown = compare("--activations", "relu,prelu,grelu", *OUT, "--runs", 20, "--margin", 2)
    assert "at look 2 " in " ".join(shown.split())


def test_a_page_of_further_runs_is_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_engine, "score", noisy)
    compare("--activations", "relu,grelu", *OUT, "--runs", 10)
    invoke("report", RECORD)
    assert len(looks()) == 1
    configs = {run.config for run in Record(RECORD).read()}
    more = [make_result(c, seed, noisy(c.activation, seed)) for c in configs for seed in (10, 11)]
    Record(RECORD).append(more)
    invoke("report", RECORD)
    assert [look["pairs"] for look in looks()] == [{"grelu": "0-9"}, {"grelu": "0-11"}]
    assert embedded("report.html")["tables"][0]["rows"][1]["lead"]["look"] == 2


def test_a_look_is_kept_before_anything_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in between, it counts all the same."""

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("graphrelu.lab.render.compare_rows", killed)
    done = invoke("compare", "--activations", "relu,grelu", "--runs", 10, *OUT)
    assert done.exit_code == 130
    assert [look["pairs"] for look in looks()] == [{"grelu": "0-9"}]


def test_no_verdict_where_its_look_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Record.add_look

    def full(record: Record, look: Look) -> list[Look]:
        if look.pairs:
            raise OSError(28, "No space left on device", str(RECORD))
        return written(record, look)

    monkeypatch.setattr(Record, "add_look", full)
    done = invoke("compare", "--activations", "relu,grelu", "--runs", 10, *OUT)
    assert (done.exit_code, done.stderr) == (2, "runs.jsonl: No space left on device.\n")
    assert "GReLU is" not in done.stdout
    done = invoke("report", RECORD)
    assert (done.exit_code, done.stderr) == (2, "runs.jsonl: No space left on device.\n")
    assert not Path("report.html").exists()


def test_thirty_nodes_are_too_few_to_call_grelu_better(
    folder: Path, monkeypatch: pytest.MonkeyPatch, make_npz: Any
) -> None:
    monkeypatch.setattr(fake_engine, "score", lambda name, seed: 0.7 + 0.1 * (name == "grelu"))
    shown = " ".join(invoke("compare", make_npz("small.npz"), "--runs", 10).stdout.split())
    assert "but each run tests only" in shown
