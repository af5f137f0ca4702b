"""The sizes of the house: `python scripts/house.py` prints files and lines of every part."""

from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAB = ROOT / "graphrelu" / "lab"
# Of the laboratory, what is there for sets of molecules.
MOLECULES = ("*molecules*", "graph_networks", "graph_training")


def show(name: str, paths: Iterable[Path]) -> None:
    sizes = [len(path.read_text().splitlines()) for path in paths]
    print(f"{name:22}{len(sizes):5} {sum(sizes):7,}")


def main() -> None:
    print(f"{'':22}files   lines")
    for part in sorted({path.relative_to(LAB).parts[0] for path in LAB.rglob("*.py")}):
        show(f"lab/{part}", (LAB / part).rglob("*.py") if (LAB / part).is_dir() else [LAB / part])
    show("library", (p for p in (ROOT / "graphrelu").rglob("*.py") if LAB not in p.parents))
    show("laboratory", LAB.rglob("*.py"))
    show("  of it, molecules", (p for pattern in MOLECULES for p in LAB.rglob(f"{pattern}.py")))
    for folder in ("tests", "scripts", "benchmarks", "examples"):
        show(folder, (ROOT / folder).rglob("*.py"))


if __name__ == "__main__":
    main()
