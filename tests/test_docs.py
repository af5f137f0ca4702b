"""The pages: their links lead somewhere, their code runs, and the site can be made of them."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
import yaml

import graphrelu
from graphrelu.lab import engine
from scripts import rest, site_links
from scripts.site_links import ROOT

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "results/*.md", "benchmarks/results/*.md")
    for path in ROOT.glob(pattern)
)
DOCSTRINGS = (  # of the API page in the site
    "functional",
    "lab/models/activations",
    "lab/own_model",
    "lab/models/graph_activation",
    "lab/models/backbones",
    "lab/models/graph_networks",
)


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as the repository's pages and the site have them."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        assert f"#{slug}" not in found, f"{page} has two headings {heading!r}"
        found.add(f"#{slug}")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for path, anchor in site_links.links((ROOT / page).read_text()):
        target = site_links.target(page, path)
        assert (ROOT / target).is_file(), (page, path)
        if anchor:
            assert anchor in anchors(target), (page, path, anchor)


def test_links_are_found() -> None:
    text = "[a](b.md#c) ![d](e.png) [f](#g) [h](https://i.j) `[k](l)`\n```\n[m](n)\n```\n"
    assert site_links.links(text) == [("b.md", "#c"), ("e.png", ""), ("", "#g")]


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("README.md", "docs/cost.md", "cost.md"),
        ("docs/cost.md", "../benchmarks/results/README.md", "benchmarks/results/README.md"),
        ("benchmarks/results/README.md", "../../docs/cost.md", "../../cost.md"),
        ("docs/use.md", "#the-graph", "#the-graph"),
        ("docs/use.md", "https://doi.org/10.1145/1", "https://doi.org/10.1145/1"),
    ],
)
def test_links_in_the_site(page: str, link: str, expected: str) -> None:
    assert site_links.adapted(f"[a]({link}) `[a]({link})`", page) == (
        f"[a]({expected}) `[a]({link})`"
    )


def test_site_has_what_its_pages_link_to() -> None:
    files = {site_links.in_site(page) for page in PAGES} | set(site_links.copied())
    docs = ROOT / "docs"  # which the site holds as it is
    files |= {str(path.relative_to(docs)) for path in (docs / "assets").iterdir()}
    for page in PAGES:
        for path, _ in site_links.links((ROOT / page).read_text()):
            assert site_links.in_site(site_links.target(page, path)) in files, (page, path)


def test_navigation_has_every_page() -> None:
    listed = re.findall(
        r"^ +- (?:.+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE
    )
    assert sorted(listed) == sorted(map(site_links.in_site, PAGES))


def test_tests_that_pages_name_are_there() -> None:
    for page in PAGES:
        for path in re.findall(r"\btests/[\w/.]*\w", (ROOT / page).read_text()):
            assert (ROOT / path).exists(), (page, path)


def code_of(page: str) -> str:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


@pytest.mark.parametrize(
    "page", [path.stem for path in (ROOT / "docs").glob("*.md") if code_of(path.stem)]
)
def test_code_of_a_page_runs(
    page: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In one go, as a reader would; a comment or the next block says what is printed."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    for name, value in address.items():  # what torchrun tells the only process
        monkeypatch.setenv(name, value)
    # Datasets and clusters are elsewhere; tests/lab/engine/test_pool.py starts a cluster.
    monkeypatch.setattr(engine, "run", create_autospec(engine.run))
    monkeypatch.chdir(tmp_path)
    code = code_of(page)
    exec(code, {"__name__": page})
    expected = re.findall(r"^print\(.*\)  # ([^:\n]+)", code, re.MULTILINE)
    text = (ROOT / "docs" / f"{page}.md").read_text()
    for shown in re.findall(r"^prints\n\n```\n(.*?)```", text, re.MULTILINE | re.DOTALL):
        expected += shown.splitlines()
    assert capsys.readouterr().out.splitlines()[: len(expected)] == expected


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        (":obj:`None` or :class:`~torch.nn.ReLU`", "`None` or `ReLU`"),
        ('the `"Long\nname" <https://a.b>`_ paper', 'the ["Long name"](https://a.b) paper'),
        (
            "As:\n\n.. math::\n    x^{\\prime}_{nc} &= \\max_{1 \\leq k} \\left\\{ a\n"
            "    \\right\\}, \\qquad b\n\n    c\n\nwhere",
            "As:\n\n```text\nx\N{PRIME}_nc = max_{1 ≤ k} { a }\nb\nc\n```\n\nwhere",
        ),
    ],
)
def test_docstrings_become_markdown(docstring: str, expected: str) -> None:
    assert rest.to_markdown(docstring) == expected


@pytest.mark.parametrize("module", DOCSTRINGS)
def test_docstrings_of_the_api_page_are_understood(module: str) -> None:
    tree = ast.parse((ROOT / "graphrelu" / f"{module}.py").read_text())
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    texts = [rest.to_markdown(text) for text in found if text]
    assert texts
    for text in texts:
        assert not re.search(r"\\[a-z{,]|:\w+:`|`_|\.\. ", text), text


@pytest.mark.parametrize("name", sorted({*graphrelu.__all__} - {"__version__"}))
def test_api_page_has_the_arguments(name: str) -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    (section,) = re.findall(rf"^## {name}\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"```py\n(.*?)```", section, re.DOTALL)
    defined: dict[str, Any] = {}
    exec(f"def {shown.strip()}: ...", defined)
    real = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(getattr(graphrelu, name)).parameters.values()
    ]
    assert [*inspect.signature(defined[name]).parameters.values()] == real

    table = section.partition("| argument |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\S+)` \| (?:`(.*?)` )?\|", table, re.MULTILINE)
    assert [(argument, ast.literal_eval(default or "None")) for argument, default in rows] == [
        (
            str(parameter.replace(default=parameter.empty)),
            None if parameter.default is parameter.empty else parameter.default,
        )
        for parameter in real
    ]


def test_citation() -> None:
    """That of the software, and that of the paper, which is the README's."""
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cff["cff-version"], cff["title"]) == ("1.2.0", "graphrelu")
    assert (cff["version"], cff["license"]) == (graphrelu.__version__, "MIT")
    (paper,) = cff["references"]
    readme = (ROOT / "README.md").read_text()
    entry = dict(re.findall(r"^  (\w+) += \{(.*)\}", readme, re.MULTILINE))
    names = [f"{author['family-names']}, {author['given-names']}" for author in paper["authors"]]
    assert entry == {
        "title": paper["title"],
        "author": " and ".join(names),
        "booktitle": paper["collection-title"],
        "year": str(paper["year"]),
        "doi": paper["doi"],
    }
