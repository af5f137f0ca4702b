"""What is said of a vulnerability, and of a database that does not answer."""

import pytest

from scripts import audit

SAFE = {"name": "torch", "version": "2.13.0", "vulns": []}
UNKNOWN = {"name": "numpy", "skip_reason": "Dependency not found"}
FOUND = {
    "name": "jinja2",
    "version": "3.1.0",
    "vulns": [
        {"id": "CVE-1", "fix_versions": ["3.1.4", "3.1.5"]},
        {"id": "CVE-2", "fix_versions": []},
    ],
}


def test_finding() -> None:
    text, code = audit.verdict([SAFE, UNKNOWN, FOUND])
    assert code == 1
    assert text.splitlines() == [
        "jinja2 3.1.0: CVE-1, mended in 3.1.4, 3.1.5",
        "jinja2 3.1.0: CVE-2, mended in no version yet",
        "2 of 3 packages audited, 2 findings",
    ]


def test_no_finding() -> None:
    assert audit.verdict([SAFE, UNKNOWN]) == ("1 of 2 packages audited, 0 findings", 0)


@pytest.mark.parametrize("answer", [[], [UNKNOWN]])
def test_no_answer_is_not_a_clean_bill(
    answer: list, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """An index without the data calls every package unknown, which pip-audit lets pass."""
    asked = []
    monkeypatch.setattr(audit, "look_up", lambda service: asked.append(service) or answer)
    assert audit.main() == 0
    assert asked == ["pypi", "osv"]
    assert capsys.readouterr().out.startswith("not audited: ")


def test_the_first_service_that_answers_decides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    answers = {"pypi": [UNKNOWN], "osv": [FOUND]}
    monkeypatch.setattr(audit, "look_up", answers.__getitem__)
    assert audit.main() == 1
    assert "CVE-1" in capsys.readouterr().out
