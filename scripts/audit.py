"""Looks the versions of constraints.txt up among known vulnerabilities: part of make lint.

A finding fails. Where no database answers, it says that nothing was audited, and passes.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PINNED = Path(__file__).parents[1] / "constraints.txt"


def look_up(service: str) -> list[dict[str, Any]]:
    """The packages that a database knows, by pip-audit; none where it cannot be reached."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(PINNED), "--no-deps"]
    command += ["--disable-pip", "--format", "json", "--progress-spinner", "off"]
    command += ["--timeout", "10", "--vulnerability-service", service]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    packages = json.loads(answer.stdout)["dependencies"] if answer.stdout else []
    return [package for package in packages if "vulns" in package]


def main() -> int:
    packages = look_up("pypi") or look_up("osv")
    if not packages:
        print("not audited: no database of vulnerabilities can be reached from here")
        return 0
    findings = [
        f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in "
        f"{', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for package in packages
        for vulnerability in package["vulns"]
    ]
    print(*findings, f"packages audited: {len(packages)}, findings: {len(findings)}", sep="\n")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
