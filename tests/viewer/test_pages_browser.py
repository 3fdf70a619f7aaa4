"""Pages of runs and evaluations in a browser: nothing is cut on a telephone, dark and printed pages are readable."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import goalscope
from goalscope.report import write_report
from goalscope.runs import Store, Study, run
from measured_runs import measured, small_study

pytestmark = pytest.mark.full
api: Any = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
BROWSER = os.environ.get("GOALSCOPE_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")

CUT = """() => [...document.querySelectorAll('html, .wide, table, figure, svg, pre, dl')]
  .filter(one => one.clientWidth && one.scrollWidth > one.clientWidth
    || one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(one => `${one.tagName} ${one.id} ${one.scrollWidth} > ${one.clientWidth}`)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        try:
            one = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        except api.Error as error:
            pytest.skip(f"no Chromium to test the pages with: set GOALSCOPE_BROWSER to one ({str(error)[:80]})")
        yield one
        one.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind: grids, tasks, one model, two models."""
    folder, found = tmp_path_factory.mktemp("pages"), dict[str, Path]()
    runs = {"grids": measured(folder / "grids", small_study())}
    tasks = Study.parse(
        {
            "worlds": [{"kind": "task-map", "presets": ["high-small"], "count": 2}],
            "agents": [{"kind": "task-greedy"}, {"kind": "task-random-walk"}],
        }
    )
    run(tasks, folder / "tasks")
    goalscope.measure(folder / "tasks")
    runs["tasks"] = folder / "tasks"
    for name, directory in runs.items():
        with Store(directory) as store:
            found[name] = write_report(store, folder / f"{name}.html")
    for name, models in (("one", ["optimal"]), ("two", ["optimal", "random"])):
        evaluation = goalscope.evaluate(models, folder / name, quick=True, sizes=[5], arms=["grids", "keys", "depends"])
        found[name] = evaluation.report()
    return found


@pytest.mark.parametrize("name", ["grids", "tasks", "one", "two"])
def test_no_table_and_no_figure_is_cut_on_a_telephone(pages: dict[str, Path], browser: Any, name: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(pages[name].as_uri())
    assert page.evaluate(CUT) == []
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate(CUT) == [] and said == []
    context.close()


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_printed_verdict_has_at_most_four_pages(pages: dict[str, Path], browser: Any, name: str) -> None:
    page = browser.new_page()
    page.goto(pages[name].as_uri())
    printed = page.pdf(format="A4")
    page.close()
    assert 1 <= len(re.findall(rb"/Type\s*/Page[^s]", printed)) <= 4


def test_text_stands_out_from_its_ground_in_light_and_dark(pages: dict[str, Path], browser: Any) -> None:
    script = """() => [...document.querySelectorAll('p, td, th, dd, dt, a, summary, figcaption')].map(one => [
      getComputedStyle(one).color, getComputedStyle(document.body).backgroundColor])"""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    grounds = set()
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto(pages["two"].as_uri())
        pairs = {tuple(pair) for pair in page.evaluate(script)}
        for ink, ground in pairs:
            dark, light = sorted((luminance(ink), luminance(ground)))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (scheme, ink, ground)
            grounds.add(ground)
        context.close()
    assert len(grounds) == 2


def test_a_link_into_what_is_folded_opens_it(pages: dict[str, Path], browser: Any) -> None:
    page = browser.new_page()
    page.goto(pages["one"].as_uri())
    evidence = page.locator("#evidence")
    assert not evidence.is_visible()
    page.locator("#claims a").first.click()
    evidence.wait_for(state="visible")
    page.close()


def test_lines_are_chosen_by_their_answer_without_a_script(pages: dict[str, Path], browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["two"].as_uri())
    lines = page.locator("#matrix tbody").first.locator("tr")
    shown = lines.count()
    page.locator("#matrix .pick input[value='✗']").first.check()
    left = [line for line in lines.all() if line.is_visible()]
    assert 0 < len(left) < shown and all(line.locator("[data-mark='✗']").count() for line in left)
    context.close()
