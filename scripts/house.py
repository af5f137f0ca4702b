"""The sizes of the house: `python scripts/house.py` prints files and lines of every part.

That no import goes up and none in a circle, import-linter says: `make lint`, by pyproject.toml.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def size(paths: list[Path]) -> str:
    lines = sum(len(path.read_text().splitlines()) for path in paths)
    return f"{len(paths):5} {lines:7,}"


def main() -> None:
    package, tests = ROOT / "graphrelu", sorted((ROOT / "tests").rglob("*.py"))
    laboratory = sorted((package / "lab").rglob("*.py"))
    library = [path for path in sorted(package.rglob("*.py")) if path not in laboratory]
    print(f"{'':12} files   lines")
    for folder in sorted({path.relative_to(package / "lab").parts[0] for path in laboratory}):
        inside = [p for p in laboratory if p.relative_to(package / "lab").parts[0] == folder]
        print(f"{f'lab/{folder}':18}{size(inside)}")
    for name, paths in (("library", library), ("laboratory", laboratory), ("tests", tests)):
        print(f"{name:18}{size(paths)}")
    print(f"{'scripts':18}{size(sorted((ROOT / 'scripts').glob('*.py')))}")


if __name__ == "__main__":
    main()
