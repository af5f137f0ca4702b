"""Looks the versions of constraints.txt up among known vulnerabilities: part of make lint.

A finding fails. Where no database answers, it says that nothing was audited, and passes.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PINNED = Path(__file__).parents[1] / "constraints.txt"
SERVICES = ("pypi", "osv")


def look_up(service: str) -> list[dict[str, Any]]:
    """pip-audit's answer for each package; empty where the service cannot be reached."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(PINNED), "--no-deps"]
    command += ["--disable-pip", "--format", "json", "--progress-spinner", "off"]
    command += ["--timeout", "10", "--vulnerability-service", service]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(answer.stdout)["dependencies"] if answer.stdout else []


def verdict(packages: list[dict[str, Any]]) -> tuple[str, int]:
    """What to say of pip-audit's answers, and the exit code."""
    audited = [package for package in packages if "vulns" in package]
    if not audited:
        return "not audited: no database of vulnerabilities can be reached from here", 0
    findings = [
        f"{package['name']} {package['version']}: {vulnerability['id']}, mended in "
        f"{', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for package in audited
        for vulnerability in package["vulns"]
    ]
    share = f"{len(audited)} of {len(packages)} packages audited, {len(findings)} findings"
    return "\n".join([*findings, share]), int(bool(findings))


def main() -> int:
    packages: list[dict[str, Any]] = []
    for service in SERVICES:
        packages = look_up(service)
        if any("vulns" in package for package in packages):
            break
    text, code = verdict(packages)
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
