"""Many runs: side by side, recorded once, and not lost when time is up."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from graphrelu.lab.engine.graph_runs import append, main, perform_all, read_record
from graphrelu.lab.engine.graph_training import GraphRun
from tests.lab.engine.test_graph_training import RUN
from tests.lab.molecule_sets import ring_set


@pytest.fixture
def data(tmp_path: Path) -> Path:
    ring_set().save(tmp_path / "data" / "rings.npz")
    return tmp_path / "data"


def test_finished_runs_are_not_done_again(data: Path, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    runs = [replace(RUN, seed=seed, epochs=2) for seed in (0, 1)]
    assert perform_all(runs[:1], data, record) == 0
    first = record.read_text()
    assert perform_all(runs, data, record) == 0
    assert record.read_text().startswith(first)
    entries = read_record(record)
    assert [entry["run"]["seed"] for entry in entries] == [0, 1]
    assert entries[0]["device"]
    assert entries[0]["versions"]["torch"]


def test_processes_give_the_same_results(data: Path, tmp_path: Path) -> None:
    runs = [replace(RUN, seed=seed, epochs=2) for seed in (0, 1, 2)]
    perform_all(runs, data, tmp_path / "one.jsonl")
    perform_all(runs, data, tmp_path / "two.jsonl", processes=2)
    one, two = (
        {entry["run"]["seed"]: entry["curves"] for entry in read_record(tmp_path / name)}
        for name in ("one.jsonl", "two.jsonl")
    )
    assert one == two


def test_what_was_begun_when_time_was_up_is_kept(data: Path, tmp_path: Path) -> None:
    record, states = tmp_path / "record.jsonl", tmp_path / "states"
    runs = [replace(RUN, epochs=1_000_000, seed=seed) for seed in (0, 1)]
    assert perform_all(runs, data, record, seconds=1.0, states=states) == 2
    assert [path.name for path in states.iterdir()] == [f"{runs[0].key()}.pt"]
    assert read_record(record) == []
    assert perform_all(runs, data, record, seconds=-1.0, states=states) == 2  # nothing is begun


def test_a_torn_line_is_not_data(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    append(record, {"run": RUN.to_dict(), "score": 1.0})
    with record.open("a") as file:
        file.write('{"event": "graph_run", "run": {"seed"')
    append(record, {"run": replace(RUN, seed=1).to_dict(), "score": 2.0})
    append(record, {"run": RUN.to_dict(), "score": 3.0})
    assert [entry["score"] for entry in read_record(record)] == [1.0, 2.0]


def test_a_run_is_the_same_after_a_journey_through_json() -> None:
    run = replace(RUN, activation="grelu", activation_options={"node_wise": False})
    again = GraphRun.from_dict(json.loads(json.dumps(run.to_dict())))
    assert again == run
    assert again.key() == run.key()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (None, "runs.jsonl: No such file or directory."),
        ('{"datset": "rings"}', "A run has no field 'datset'."),
        (json.dumps({**RUN.to_dict(), "dataset": "none"}), "none.npz: No such file or directory."),
    ],
)
def test_bad_input_gets_one_sentence(
    line: str | None,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if line is not None:
        Path("runs.jsonl").write_text(line)
    arguments = ["graph_runs", "runs.jsonl", "--data", ".", "--record", "record.jsonl"]
    monkeypatch.setattr("sys.argv", [*arguments, "--device", "cpu"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert told in capsys.readouterr().err
