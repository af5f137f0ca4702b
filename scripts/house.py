"""How the modules hang together: `python scripts/house.py`.

Prints for each folder its files, its lines, how many modules of other folders import it (fan-in)
and how many it imports (fan-out); then every import that goes up, and every circle. Imports inside
of functions and under TYPE_CHECKING count as well. Exits with 1 if there are any.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
# From the ground floor up: a room imports what stands before it, never what stands after it.
ROOMS = (
    "graphrelu.functional",
    "graphrelu.ops",
    "graphrelu.graph",
    "graphrelu.checks",
    "graphrelu.statistics",
    "graphrelu.context",
    "graphrelu.grelu",
    "graphrelu.hetero",
    "graphrelu.conversion",
    "graphrelu",
    "graphrelu.lab.names",
    "graphrelu.lab.signals",
    "graphrelu.lab.data",
    "graphrelu.lab.models",
    "graphrelu.lab.record",
    "graphrelu.lab.stats",
    "graphrelu.lab.engine",
    "graphrelu.lab.render",
    "graphrelu.lab.prepare",
    "graphrelu.lab.page",
    "graphrelu.lab.cli",
    "graphrelu.lab.reproduce",
    "graphrelu.lab",
)

Imports = dict[str, set[str]]


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Every module of the package and its file."""
    found = {}
    for path in sorted((root / "graphrelu").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(found: dict[str, Path]) -> Imports:
    """Which modules of the package each of them imports, anywhere in its file."""
    graph = {}
    for module, path in found.items():
        own: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                own.update(name.name for name in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{name.name}" for name in node.names}
                own |= inner & found.keys()
                if inner - found.keys():
                    own.add(node.module)
        graph[module] = (own & found.keys()) - {module}
    return graph


def room(module: str) -> str:
    """The room with the longest name that the module is in."""
    inside = [name for name in ROOMS if f"{module}.".startswith(f"{name}.")]
    return max(inside, key=len)


def upward(graph: Imports) -> list[str]:
    """Imports of a room that stands higher."""
    return [
        f"{module} imports {other}"
        for module, own in graph.items()
        for other in sorted(own)
        if ROOMS.index(room(other)) > ROOMS.index(room(module))
    ]


def circles(graph: Imports) -> list[str]:
    """One circle through each module that is in any."""
    found = []
    for start in graph:
        paths = [[start, other] for other in sorted(graph[start])]
        seen: set[str] = set()
        while paths:
            path = paths.pop(0)
            if path[-1] == start:
                if start == min(path):  # each circle once
                    found.append(" -> ".join(path))
                break
            if path[-1] not in seen:
                seen.add(path[-1])
                paths += [[*path, other] for other in sorted(graph[path[-1]])]
    return found


def table(found: dict[str, Path], graph: Imports) -> str:
    """A line for each room."""
    by_room = defaultdict(list)
    for module in found:
        by_room[room(module)].append(module)
    lines = [f"{'room':26} {'files':>5} {'lines':>6} {'fan-in':>7} {'fan-out':>8}"]
    for name in ROOMS:
        own = by_room[name]
        size = sum(len(found[module].read_text().splitlines()) for module in own)
        fan_in = sum(bool(graph[other] & set(own)) for other in found if other not in own)
        fan_out = len(set().union(*(graph[module] for module in own)) - set(own))
        lines.append(f"{name:26} {len(own):5} {size:6,} {fan_in:7} {fan_out:8}")
    for title, inside in (("library", False), ("laboratory", True)):
        own = [module for module in found if module.startswith("graphrelu.lab") == inside]
        size = sum(len(found[module].read_text().splitlines()) for module in own)
        lines.append(f"{title:26} {len(own):5} {size:6,}")
    return "\n".join(lines)


def main() -> int:
    found = modules()
    graph = imports(found)
    print(table(found, graph))
    faults = {"goes up": upward(graph), "circle": circles(graph)}
    for kind, own in faults.items():
        for fault in own:
            print(f"{kind}: {fault}")
    print("no import goes up, none in a circle" if not any(faults.values()) else "")
    return int(any(faults.values()))


if __name__ == "__main__":
    sys.exit(main())
