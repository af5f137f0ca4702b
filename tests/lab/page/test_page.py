"""The page: what writes it, what it refuses, and that its text is harmless and readable."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from torch_geometric.data import Data

from graphrelu.lab import page
from graphrelu.lab.record.results import Record
from tests.lab.fake_engine import invoke
from tests.lab.pages import HOSTILE, embedded, keep_model, ring_page

pytestmark = pytest.mark.usefixtures("folder")


def test_text_from_data_is_harmless(ring: Data, tmp_path: Path) -> None:
    path = ring_page(ring, tmp_path)
    text = path.read_text(encoding="utf-8")
    assert "<script>document" not in text
    assert text.count("<script") == text.count("</script>") == 2
    content = embedded(path)
    assert content["tables"][0]["rows"][0]["dataset"] == HOSTILE
    assert [model["name"] for model in content["models"]] == [f"{HOSTILE}, GCN, acts.0"]
    html = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert re.findall(r'(?:src|href)="(.*?)"', html) == ["data:,", "#results"]
    for name in page.SCRIPTS:
        script = files("graphrelu.lab.page").joinpath("templates", name).read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b", script)


def test_report_reads_and_changes_nothing(
    tmp_path: Path, tree: Callable[[Path], dict[str, tuple[int, int]]]
) -> None:
    kept = tmp_path / "results"
    invoke("compare", "--runs", 2, "--out", "results/runs.jsonl")
    trained = next(
        r.config for r in Record(kept / "runs.jsonl").read() if r.config.activation == "grelu"
    )
    keep_model(kept / "runs.jsonl", trained, nodes=1797)
    before = tree(kept)
    assert invoke("report", "results/runs.jsonl").stdout == "Written: report.html.\n"
    content = embedded(tmp_path / "report.html")
    assert [table["name"] for table in content["tables"]] == ["runs.jsonl"]
    assert len(content["models"]) == 1
    assert tree(kept) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "results"]


def test_report_says_whose_models_it_cannot_draw(make_npz: Callable[..., Path]) -> None:
    own = make_npz("own.npz")
    compare = ("compare", own, "--activations", "grelu", "--runs", 1, "--out", "runs.jsonl")
    invoke(*compare)
    (run,) = Record("runs.jsonl").read()
    keep_model(Path("runs.jsonl"), run.config)
    invoke("report", "runs.jsonl")
    assert embedded("report.html")["missing"] == [
        "runs.jsonl: the explorer lacks own.npz; the page of graphrelu compare has it."
    ]
    invoke(*compare, "--report", "own.html")
    assert len(embedded("own.html")["models"]) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["report", "gone.jsonl"], "There is no record gone.jsonl."),
        (
            ["report", "empty.jsonl", "-o", "empty.jsonl"],
            "empty.jsonl cannot be both a record and the page.",
        ),
        (["report", "empty.jsonl"], "empty.jsonl has no finished runs to show."),
        (["report", "none.jsonl"], "none.jsonl has no finished runs to show."),
    ],
)
def test_bad_input_is_a_one_line_error(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "none.jsonl").write_bytes(b"[" * 100_000 + b"\n\xff\n")
    done = invoke(*arguments)
    assert (done.exit_code, done.stderr) == (2, sentence + "\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.jsonl", "none.jsonl"]


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    invoke("compare", "--runs", 3, "--activations", "relu,elu", "--out", "runs.jsonl")
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    lines.insert(1, '{"event":"finished","torn')
    (tmp_path / "runs.jsonl").write_text("\n".join(lines) + "\n")
    done = invoke("report", "empty.jsonl", "runs.jsonl")
    assert (done.exit_code, done.stdout) == (0, "Written: report.html.\n")
    content = embedded(tmp_path / "report.html")
    assert content["missing"] == [
        "empty.jsonl has no finished runs to show.",
        "runs.jsonl: 1 line cannot be read (number 2).",
    ]
    assert len(content["tables"]) == 1
