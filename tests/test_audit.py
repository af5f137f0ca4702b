"""What is said of a vulnerability, and of a database that does not answer."""

import pytest

from scripts import audit

SAFE = {"name": "torch", "version": "2.13.0", "vulns": []}
UNKNOWN = {"name": "numpy", "skip_reason": "Dependency not found"}
CVES = [{"id": "CVE-1", "fix_versions": ["3.1.4", "3.1.5"]}, {"id": "CVE-2", "fix_versions": []}]
FOUND = {"name": "jinja2", "version": "3.1.0", "vulns": CVES}


def test_verdict() -> None:
    text, code = audit.verdict([SAFE, UNKNOWN, FOUND])
    assert code == 1
    assert text.splitlines() == [
        "jinja2 3.1.0: CVE-1, mended in 3.1.4, 3.1.5",
        "jinja2 3.1.0: CVE-2, mended in no version yet",
        "2 of 3 packages audited, 2 findings",
    ]
    assert audit.verdict([SAFE, UNKNOWN]) == ("1 of 2 packages audited, 0 findings", 0)


@pytest.mark.parametrize(
    ("answers", "code", "text"),
    [
        # An index without the data calls every package unknown, which pip-audit lets pass.
        ({"pypi": [], "osv": []}, 0, "not audited: "),
        ({"pypi": [UNKNOWN], "osv": [UNKNOWN]}, 0, "not audited: "),
        ({"pypi": [UNKNOWN], "osv": [FOUND]}, 1, "jinja2 3.1.0: CVE-1"),
    ],
)
def test_the_first_service_that_answers_decides(
    answers: dict,
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    asked = []
    monkeypatch.setattr(audit, "look_up", lambda name: asked.append(name) or answers[name])
    assert audit.main() == code
    assert asked == ["pypi", "osv"]
    assert capsys.readouterr().out.startswith(text)
