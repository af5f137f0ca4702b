"""What is said of a vulnerability, and of a database that does not answer."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from scripts import audit

SAFE = {"name": "torch", "version": "2.13.0", "vulns": []}
UNKNOWN = {"name": "numpy", "skip_reason": "Dependency not found"}
CVES = [{"id": "CVE-1", "fix_versions": ["3.1.4", "3.1.5"]}, {"id": "CVE-2", "fix_versions": []}]
FOUND = {"name": "jinja2", "version": "3.1.0", "vulns": CVES}


@pytest.mark.parametrize(
    ("answers", "code", "last"),
    [
        # An index without the data calls every package unknown, which pip-audit lets pass.
        ({"pypi": [], "osv": []}, 0, "not audited: no database of vulnerabilities can be reached"),
        ({"pypi": [UNKNOWN], "osv": [SAFE]}, 0, "packages audited: 1, findings: 0"),
        ({"pypi": [SAFE, UNKNOWN, FOUND]}, 1, "packages audited: 2, findings: 2"),
    ],
)
def test_the_first_service_that_answers_decides(
    answers: dict,
    code: int,
    last: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    def run(command: list[str], **options: object) -> SimpleNamespace:
        packages = answers[command[-1]]
        return SimpleNamespace(stdout=packages and json.dumps({"dependencies": packages}))

    monkeypatch.setattr(subprocess, "run", run)
    assert audit.main() == code
    *findings, said = capsys.readouterr().out.splitlines()
    assert said.startswith(last)
    if code:
        assert findings == [
            "jinja2 3.1.0: CVE-1, fixed in 3.1.4, 3.1.5",
            "jinja2 3.1.0: CVE-2, fixed in no version yet",
        ]
