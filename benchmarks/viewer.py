"""How fast the viewer opens and steps in headless Chromium, for tables of two sizes; needs Playwright and a browser."""

import importlib
import importlib.util
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

from goalscope.report.ledger import Run
from goalscope.runs import Study, run
from goalscope.verdict.viewer.collect import EpisodeList, collect
from goalscope.verdict.viewer.page import pack, write_packed

SIZES = ((3_000, 2.0), (60_000, 4.0))
MOST_OF_STEP = 0.050  # seconds
PLAYED = 300  # episodes that are really played; the others are these under other ids
ROUNDS, STEPS = 5, 20

STEP = """async () => {
  const times = [];
  for (let at = 0; at < 20; at++) {
    const start = performance.now();
    dispatchEvent(new KeyboardEvent('keydown', {key: at % 2 ? 'ArrowLeft' : 'ArrowRight'}));
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - start);
  }
  return times;
}"""


def main() -> None:
    """Print how long it takes from the address to the list and to a step."""
    if importlib.util.find_spec("playwright") is None:
        print("not measured: Playwright is not installed (pip install playwright)")
        return
    sync_playwright = importlib.import_module("playwright.sync_api").sync_playwright
    browser_path = os.environ.get("GOALSCOPE_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        grids = {"kind": "grid", "sizes": [7, 9, 11], "densities": [0.6], "count": PLAYED // 6}
        agents = [{"kind": "optimal"}, {"kind": "epsilon-greedy", "epsilon": 0.3}]
        run(Study.parse({"worlds": [grids], "agents": agents, "trajectories": 1}), folder / "run")
        begin = time.perf_counter()
        table = EpisodeList()
        shards = list(collect([("run", Run(folder / "run"))], table))
        print(f"written: {(time.perf_counter() - begin) / PLAYED * 1000:.1f} ms an episode (Python, {PLAYED} episodes)")
        for count, most in SIZES:
            page = repeated(folder / f"{count}.html", count, table, shards)
            opened, stepped = list[float](), list[float]()
            for _ in range(ROUNDS):
                tab = browser.new_page()
                begin = time.perf_counter()
                tab.goto(page.as_uri())
                tab.locator(".rows .row").first.wait_for()
                opened.append(time.perf_counter() - begin)
                tab.locator(".rows .row").nth(3).click()
                tab.locator("article").wait_for()
                stepped += [float(each) / 1000 for each in tab.evaluate(STEP)]
                tab.close()
            told = f"{1000 * median(stepped):.0f} ms (most {1000 * max(stepped):.0f}, target {1000 * MOST_OF_STEP:.0f})"
            print(
                f"{count:,} episodes, {megabytes(page):.0f} MB: open {median(opened):.2f} s (most {max(opened):.2f}, "
                f"target {most}), a step {told}; {ROUNDS} rounds, {len(stepped)} steps"
            )
        browser.close()


def megabytes(page: Path) -> float:
    """Return the size of a page with the folder beside it."""
    return sum(file.stat().st_size for file in (page, *page.with_name(f"{page.stem}.data").glob("*.js"))) / 1e6


def repeated(page: Path, count: int, table: EpisodeList, shards: list[dict[str, object]]) -> Path:
    """Write a page of the same episodes over and over, each time under other ids."""
    plain = table.plain()
    columns, packed = plain["columns"], list[str]()
    more = {name: list[object]() for name in columns if name != "tags"}
    tags = {name: list[object]() for name in columns["tags"]}
    times = -(-count // len(columns["id"]))
    for time_of in range(times):
        mark = f"episode-{time_of:04x}"
        for shard in shards:
            episodes = [{**one, "id": mark + one["id"][12:]} for one in shard["episodes"]]  # type: ignore[attr-defined]
            packed.append(pack({**shard, "episodes": episodes}))
        for name in more:
            more[name] += columns[name]
        for name in tags:
            tags[name] += columns["tags"][name]
        more["id"][-len(columns["id"]) :] = [mark + str(one)[12:] for one in columns["id"]]
        more["shard"][-len(columns["id"]) :] = [one + time_of * len(shards) for one in columns["shard"]]
    index = {"title": page.stem, "version": "", "claims": [], "shards": len(packed)}
    index["table"] = {**plain, "columns": {**more, "tags": tags}}
    write_packed(page, index, packed)
    return page


if __name__ == "__main__":
    main()
