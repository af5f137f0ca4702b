"""The page in a browser: Chromium, where there is one."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image
from playwright import sync_api
from torch_geometric.data import Data

from graphrelu.lab import page
from graphrelu.lab.reproduce.command import EXPERIMENTS
from tests.lab.pages import HOSTILE, ring_page, set_page

RESULTS = Path(__file__).parents[3] / "results"
AXE = RESULTS.parent / "node_modules" / "axe-core" / "axe.min.js"
NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}


@dataclass
class Visit:
    """A page that was opened, what it asked for, and what went wrong."""

    page: Any
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        found = "heads => heads.map(head => head.dataset.column)"
        return self.page.locator("#table th").evaluate_all(found)

    def column(self, name: str) -> list[str]:
        number = self.columns.index(name) + 1
        return self.page.locator(f"#table tbody td:nth-child({number})").all_inner_texts()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"there is no browser: none of {', '.join(NAMES)} is installed")
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=found, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    contexts = []

    def opened(path: Path, size: str = "desktop", scheme: str = "light") -> Visit:
        width, height = WIDTHS[size]
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        contexts.append(context)
        found = Visit(context.new_page())
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on("pageerror", lambda error: found.errors.append(str(error)))
        found.page.on("console", lambda message: found.errors.append(message.text))
        found.page.goto(path.resolve().as_uri())
        return found

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def ring_file(ring: Data, tmp_path: Path) -> Path:
    return ring_page(ring, tmp_path)


@pytest.fixture(scope="module")
def set_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return set_page(tmp_path_factory.mktemp("set"))


@pytest.fixture
def seen(visit: Any, ring_file: Path) -> Iterator[Visit]:
    """The page of one comparison, on a desktop; nothing that a test does there goes wrong."""
    found = visit(ring_file)
    yield found
    assert found.errors == []


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of all committed records that belong there."""
    records = [path for name in EXPERIMENTS if (path := RESULTS / f"{name}.jsonl").exists()]
    content = page.from_records(records)
    return page.write(tmp_path_factory.mktemp("page") / "report.html", content)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", WIDTHS)
def test_page_opens_without_errors_or_requests(
    visit: Any, committed: Path, size: str, scheme: str, tmp_path: Path
) -> None:
    seen = visit(committed, size, scheme)
    assert seen.errors == []
    assert seen.requests == [committed.as_uri()]
    assert committed.stat().st_size < 3_000_000
    for section in ("results", "differences", "origin"):
        assert seen.page.locator(f"#{section}").is_visible(), section
    # Only the table may be wider than the screen, and it scrolls on its own.
    assert seen.page.evaluate("document.documentElement.scrollWidth") == WIDTHS[size][0]
    picture = tmp_path / "page.png"
    seen.page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 50_000
    back = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]


@pytest.fixture(scope="module")
def strong_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    content = page.from_records([RESULTS / "strong.jsonl"])
    return page.write(tmp_path_factory.mktemp("page") / "strong.html", content)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", WIDTHS)
@pytest.mark.parametrize("name", ["ring_file", "set_file", "strong_file"])
def test_axe_finds_no_serious_problem(
    visit: Any, request: pytest.FixtureRequest, name: str, size: str, scheme: str
) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed; make browser installs it where npm is")
    seen = visit(request.getfixturevalue(name), size, scheme)
    seen.page.evaluate(AXE.read_text())  # the page's policy lets no other script in
    for tab in seen.page.get_by_role("tab").all():
        tab.click()
        found = seen.page.evaluate("axe.run().then((found) => found.violations)")
        grave = [one for one in found if one["impact"] in ("serious", "critical")]
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in grave] == []
    assert seen.errors == []


def test_hostile_names_do_nothing(seen: Visit) -> None:
    assert seen.page.title() == "GReLU: activations compared"
    assert seen.page.locator("#answer").inner_text() == "GReLU is better than ReLU."
    assert seen.page.locator("h1").inner_text() == f"{HOSTILE}, GCN: activations compared"
    assert seen.page.locator("script").count() == 2
    assert HOSTILE in seen.page.locator("#origin code").first.inner_text()


def test_policy_lets_nothing_out_and_no_script_in(visit: Any, ring_file: Path) -> None:
    here = visit(ring_file).page
    blocked = """fetch("http://127.0.0.1:9/").then(() => "out", () => "blocked")"""
    assert here.evaluate(blocked) == "blocked"
    here.evaluate(
        """const added = document.createElement("script");
        added.textContent = "document.title = 'taken'"; document.body.append(added)"""
    )
    assert here.title() == "GReLU: activations compared"


def test_table_sorts(seen: Visit) -> None:
    assert seen.column("activation") == ["ReLU", "ELU", "GReLU"]
    head = seen.page.locator("#table th", has_text="score")
    means = []
    for direction in ("descending", "ascending"):
        head.locator("button").press("Enter")  # the button keeps the focus
        assert head.get_attribute("aria-sort") == direction
        means.append([float(text.split()[0]) for text in seen.column("score")])
    assert means[0] == sorted(means[0], reverse=True) == means[1][::-1]
    assert seen.column("activation") == ["ReLU", "ELU", "GReLU"]
    seen.page.get_by_role("button", name="activation").click()
    assert seen.column("activation") == ["ELU", "GReLU", "ReLU"]


def test_scores_and_price_are_tabs(seen: Visit) -> None:
    scores = ["activation", "score", "difference to ReLU", "verdict", "p", "runs"]
    note = seen.page.locator("#table-note")
    assert seen.columns == scores
    seen.page.get_by_role("tab", name="loss and price").press("Enter")
    assert seen.columns == ["activation", "test loss", "ECE", "s per epoch", "parameters"]
    assert "divided by their number" in note.inner_text()
    seen.page.keyboard.press("Shift+Tab")  # the chosen tab had the focus
    seen.page.keyboard.press("Enter")
    assert seen.columns == scores


def test_what_matters_is_on_a_narrow_screen(visit: Any, committed: Path) -> None:
    hints = {"phone": "Scroll the table: → more columns, ↓ 180 rows.", "desktop": "↓ 180 rows."}
    for size, hint in hints.items():
        seen = visit(committed, size)
        assert seen.page.locator("#hint").inner_text().endswith(hint)
        ends = "heads => heads.map(head => head.getBoundingClientRect().right)"
        seen_whole = [end <= WIDTHS[size][0] for end in seen.page.locator("th").evaluate_all(ends)]
        if size == "phone":
            assert seen.columns[:4] == ["activation", "score", "difference to ReLU", "verdict"]
            assert seen_whole[:4] == [True] * 4
            assert seen.column("activation")[0].split("\n") == ["ReLU", "Cora · Cheb"]
        else:
            assert seen.columns[0] == "dataset"
            assert all(seen_whole)


def test_every_difference_of_a_seed_is_drawn(seen: Visit) -> None:
    dots, marks = (seen.page.locator(f"#differences {name}") for name in ("path", "polygon"))
    assert dots.count() == marks.count() == 2
    for dot, mark in zip(dots.all(), marks.all(), strict=True):
        places = [float(x) for x in re.findall(r"M([\d.]+)", dot.get_attribute("d"))]
        corners = [float(x) for x in re.findall(r"([\d.]+),", mark.get_attribute("points"))]
        middle = (min(corners) + max(corners)) / 2
        assert len(places) == 8
        assert sum(places) / 8 == pytest.approx(middle, abs=0.1)


@pytest.mark.parametrize("size", WIDTHS)
def test_no_two_differences_have_the_same_name(visit: Any, strong_file: Path, size: str) -> None:
    names = visit(strong_file, size).page.locator("#differences g > title + text")
    assert len(set(names.all_text_contents())) == names.count() > 10


def test_table_filters(visit: Any, committed: Path) -> None:
    seen = visit(committed)
    everything = len(seen.column("dataset"))
    seen.page.get_by_label("backbone").select_option("GCN")
    assert 0 < len(seen.column("dataset")) < everything
    assert "backbone" not in seen.columns  # all rows have one
    seen.page.get_by_label("activation").select_option("ELU")
    assert set(seen.column("activation")) == {"ELU"}
    assert seen.page.locator("#differences polygon").count() == len(seen.column("activation"))
    seen.page.get_by_label("record").select_option(label="segments.jsonl")
    assert "GReLU (K=7)" in seen.column("activation")
    origin = seen.page.locator("#origin")
    assert "NVIDIA H200" in origin.inner_text()
    for summary in origin.locator("summary").all():
        summary.press("Enter")
    assert "weight decay" in origin.locator("details").first.inner_text()
    assert seen.errors == []


def test_card_answers_first(seen: Visit) -> None:
    card = seen.page.locator("#card")
    assert card.locator("#answer").inner_text() == "GReLU is better than ReLU."
    ends = "line => [line.x1.baseVal.value, line.x2.baseVal.value]"
    low, high = card.locator("line.better").evaluate(ends)
    start, width = card.locator(".margin").evaluate(
        "box => [box.x.baseVal.value, box.width.baseVal.value]"
    )
    assert start < start + width / 2 < low < high  # the middle of the margin is 0
    assert card.locator("dt").all_inner_texts() == ["s per epoch", "parameters"]
    assert seen.page.locator("#about").inner_text().startswith("12 nodes, 24 edges, 3 features")
    assert "homophily 0.00. Split: " in seen.page.locator("#about").inner_text()
    names = seen.page.locator("select").evaluate_all("boxes => boxes.map(box => box.name)")
    assert names == ["activation", "curve", "colour", "node"]  # a choice of one has no control


def test_every_seed_is_shown_by_mouse_and_by_keyboard(seen: Visit) -> None:
    tip, rows = seen.page.locator("#tip"), seen.page.locator("#table tbody tr")
    assert tip.is_hidden()
    rows.nth(1).hover()
    assert tip.locator("li").all_inner_texts()[0] == "0: 80.6"
    assert tip.locator("li").count() == tip.locator("circle").count() == 8
    seen.page.mouse.move(0, 0)
    assert tip.is_hidden()
    seen.page.locator("#table th button").last.focus()
    seen.page.keyboard.press("Tab")
    assert "ReLU" in tip.locator("strong").inner_text()
    seen.page.keyboard.press("ArrowDown")
    seen.page.keyboard.press("ArrowDown")
    assert tip.locator("strong").inner_text().endswith("GReLU")
    assert rows.nth(2).get_attribute("aria-describedby") == "tip"
    seen.page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_choosing_a_node_draws_its_functions(seen: Visit) -> None:
    part = seen.page.locator("#graph")
    lines = part.locator(".functions polyline.s5")
    assert part.locator("h3").inner_text() == "Node 0"
    assert lines.count() == 4
    at_first = lines.first.get_attribute("points")
    part.locator("[data-node='7']").click()
    assert part.locator("h3").inner_text() == "Node 7"
    assert part.locator("select[name=node]").input_value() == "7"
    by_mouse = lines.first.get_attribute("points")
    assert by_mouse != at_first
    part.locator("select[name=node]").focus()
    seen.page.keyboard.press("ArrowDown")
    assert part.locator("h3").inner_text() == "Node 8"
    assert lines.first.get_attribute("points") != by_mouse
    part.locator("figure").nth(1).hover()
    assert seen.page.locator("#tip strong").inner_text() == "Node 8, channel 1"


def test_graphs_of_a_set_are_drawn(visit: Any, set_file: Path) -> None:
    seen = visit(set_file)
    assert seen.page.locator("#about dt").first.inner_text() == "graphs"
    assert seen.page.get_by_label("curve").input_value() == "val"
    assert (
        "root mean squared error (lower is better)" in seen.page.locator("#table-note").inner_text()
    )
    part = seen.page.locator("#graph")
    graphs = part.get_by_label("graph").locator("option").all_inner_texts()
    assert len(graphs) == 4
    for i in (0, 3):
        part.get_by_label("graph").select_option(graphs[i])
        count = int(graphs[i].split()[0])
        assert part.locator("circle.node.open").count() == count
        assert set(part.locator(".atom").all_text_contents()) <= {"0", "H", "2"}
        assert part.locator(".atom").count() == count
    colours = part.get_by_label("colour").locator("option").all_inner_texts()
    assert colours == ["gamma", "degree"]
    assert seen.errors == []


def test_nodes_are_coloured_by_what_is_chosen(seen: Visit) -> None:
    part = seen.page.locator("#graph")
    fills = "nodes => new Set(nodes.map(node => node.getAttribute('fill'))).size"
    assert part.locator("circle.node").evaluate_all(fills) == 12  # gamma differs, degree does not
    part.get_by_label("colour").select_option("degree")
    assert part.locator("circle.node").evaluate_all(fills) == 1
    part.get_by_label("colour").select_option("correctness")
    assert part.locator("circle.node").count() == part.locator("rect.node").count() == 6
    part.get_by_label("colour").select_option("class")  # two, of which one is always predicted
    assert part.locator("circle.node").evaluate_all(fills) == 2
    assert part.locator(".legend li").all_inner_texts() == ["class 0", "class 1"]


def test_curves_show_values_and_hide(seen: Visit) -> None:
    part = seen.page.locator("#curves")
    values, cross = part.locator("output"), part.locator(".cross")
    chart = part.locator("svg.lines")
    assert cross.get_attribute("visibility") == "hidden"
    chart.hover(position={"x": chart.bounding_box()["width"] - 13, "y": 50})
    assert cross.locator("text").text_content() == "epoch 12"
    assert values.all_inner_texts() == ["0.8", "0.8", "0.8"]  # 2 - 0.1 * 12
    seen.page.mouse.move(0, 0)
    assert values.all_inner_texts() == ["", "", ""]
    chart.focus()
    seen.page.keyboard.press("ArrowRight")
    seen.page.keyboard.press("ArrowRight")
    assert values.all_inner_texts() == ["1.9", "1.9", "1.9"]
    part.get_by_role("button", name="GReLU").click()
    assert part.get_by_role("button", name="GReLU").get_attribute("aria-pressed") == "false"
    assert part.locator("polyline").count() == 2


def test_losses_are_on_a_log_scale_that_can_be_switched(seen: Visit) -> None:
    part = seen.page.locator("#curves")

    def heights() -> list[float]:
        points = part.locator("polyline").first.get_attribute("points")
        return [float(point.split(",")[1]) for point in points.split()]

    assert part.locator("polyline").count() == part.locator(".band").count() == 3
    box = part.get_by_label("log")
    assert box.is_checked()
    logarithmic = heights()
    box.uncheck()
    even = heights()
    assert even[2] - even[1] == pytest.approx(even[-1] - even[-2], abs=0.2)
    assert logarithmic[2] - logarithmic[1] < 0.6 * (logarithmic[-1] - logarithmic[-2])
    part.get_by_label("curve").select_option("val_accuracy")  # which is 0 at first
    assert box.count() == 0


def saved(seen: Visit, section: str, name: str) -> bytes:
    with seen.page.expect_download() as download:
        seen.page.locator(f"#{section} .save").get_by_role("button", name=name).click()
    assert seen.errors == []
    return download.value.path().read_bytes()


def test_table_is_saved(seen: Visit) -> None:
    rows = list(csv.DictReader(saved(seen, "results", "CSV").decode().splitlines()))
    assert [row["activation"] for row in rows] == ["ReLU", "ELU", "GReLU"]
    assert rows[0]["dataset"] == HOSTILE
    assert rows[2]["verdict"] == "better"
    assert float(rows[2]["low"]) < float(rows[2]["difference"]) < float(rows[2]["high"])
    lines = saved(seen, "results", "LaTeX").decode().splitlines()
    assert lines[0] == r"\begin{tabular}{lrrlrr}"
    assert lines[2] == r"activation & score & difference to ReLU & verdict & p & runs \\"
    assert r"\textbf{" in lines[6]
    assert r" $\pm$ " in lines[6]
    assert "±" not in "".join(lines)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_are_saved(visit: Any, ring_file: Path, scheme: str) -> None:
    seen = visit(ring_file, scheme=scheme)
    seen.page.locator("#curves").get_by_role("button", name="GReLU").click()
    for section in ("differences", "curves", "graph"):
        root = ElementTree.fromstring(saved(seen, section, "SVG"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in ElementTree.tostring(root, encoding="unicode")
        image = Image.open(io.BytesIO(saved(seen, section, "PNG"))).convert("RGB")
        assert image.size == (2 * int(root.get("width")), 2 * int(root.get("height")))
        assert image.getpixel((1, 1)) == {"light": (255, 255, 255), "dark": (20, 23, 27)}[scheme]
        assert len(image.getcolors(1_000_000)) > 20
        if section == "curves":  # the legend is below, without the line that is hidden
            words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
            assert words[-2:] == ["ReLU", "ELU"]


def test_print_is_light_and_whole(visit: Any, ring_file: Path) -> None:
    seen = visit(ring_file, scheme="dark")
    seen.page.emulate_media(media="print")
    back = seen.page.evaluate(
        "getComputedStyle(document.documentElement).getPropertyValue('--back')"
    )
    assert back.strip() == "#ffffff"
    assert seen.page.locator("#filters").is_hidden()
    assert seen.page.locator("#table").evaluate("e => getComputedStyle(e).maxHeight") == "none"
