"""The pages outside docs/ in the site, and their links: a hook of mkdocs."""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# What the site takes from outside docs/, and where it does not keep its place.
COPIED = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff"),
    *("results/*.md", "results/*.png", "results/*.svg", "results/*.txt"),
    *("benchmarks/results/*.md", "benchmarks/results/*.json", "examples/*.py", "examples/*.ipynb"),
)
MOVED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
}

CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(#[^)\s]+)?\)")


def copied() -> dict[str, str]:
    """Files from outside docs/: the place in the site -> that in the repository."""
    paths = [path for pattern in COPIED for path in sorted(ROOT.glob(pattern))]
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    return {in_site(name): name for name in names}


def in_site(path: str) -> str:
    """Where a file of the repository lies in the site."""
    return MOVED.get(path, path.removeprefix("docs/"))


def links(markdown: str) -> list[tuple[str, str]]:
    """Path and anchor of each link and image inside the project; either may be empty."""
    return [(found[1], found[2] or "") for found in LINK.finditer(CODE.sub("", markdown))]


def target(page: str, path: str) -> str:
    """The file of the repository that a link of one of its pages leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page


def adapted(markdown: str, page: str) -> str:
    """A page of the repository with the links that it has in the site."""
    folder = posixpath.dirname(in_site(page)) or "."

    def adapt(found: re.Match[str]) -> str:
        path = found[1] and posixpath.relpath(in_site(target(page, found[1])), folder)
        return f"]({path}{found[2] or ''})"

    parts = CODE.split(markdown)  # every other one is code
    parts[::2] = [LINK.sub(adapt, part) for part in parts[::2]]
    return "".join(parts)


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File  # mkdocs alone calls this

    for place, origin in copied().items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / origin)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    place = page.file.src_uri
    return adapted(markdown, copied().get(place, f"docs/{place}"))
