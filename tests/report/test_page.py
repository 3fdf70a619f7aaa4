import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from families import long_after
from goalscope.measures import behaviour_measures, measure_store
from goalscope.report import build_ledger, definition_of, short, write_report
from goalscope.report.definitions import POOLED
from goalscope.runs import Store, content_hash, run
from goalscope.runs.importers import import_into, write_jsonl
from goalscope.stats import estimate_rows
from goalscope.stats.rows import Rows
from measured_runs import HOSTILE, Talker, measured, small_study
from page_numbers import study_deviations


class Page(HTMLParser):
    """Collects the elements, links and ids of a page, and checks that elements close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(tmp_path_factory.mktemp("run") / "small", small_study())


@pytest.fixture(scope="module")
def page(directory: Path) -> str:
    with Store(directory) as store:
        return write_report(store, directory / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "number",
    [
        r'data-label="Success">(\d)\.',
        r'data-label="value">(\d)\.',
        r'data-label="value">[^<]*</td><td class="number" data-label="95 % interval">\[(\d)',
    ],
)
def test_a_number_of_a_page_that_differs_from_its_record_is_found(page: str, number: str) -> None:
    assert not study_deviations(page)
    digit = re.search(number, page)
    assert digit is not None
    at = digit.start(1)
    assert study_deviations(f"{page[:at]}{(int(page[at]) + 4) % 10}{page[at + 1 :]}")


def test_the_same_run_gives_the_same_bytes(directory: Path, page: str, tmp_path: Path) -> None:
    with Store(directory) as store:
        assert write_report(store, tmp_path / "deep" / "again.html").read_text(encoding="utf-8") == page


def test_the_page_is_whole_and_asks_no_other_machine_for_anything(page: str) -> None:
    parsed = Page(page)
    assert not parsed.open
    assert {"link", "img", "iframe", "object", "embed", "base", "form"}.isdisjoint(parsed.tags)
    assert ("script", "type", "application/json") in parsed.attributes and parsed.tags.count("script") == 1
    links = [value or "" for _, name, value in parsed.attributes if name in ("href", "src", "action")]
    files = [value for value in links if not value.startswith("#")]
    assert len(files) < len(links) and all(
        value.startswith(("data:image/svg+xml;", "data:text/csv;")) for value in files
    )
    assert "http:" not in page and "https:" not in page and "@import" not in page
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on")]
    policy = [value for _, name, value in parsed.attributes if name == "content" and value and "default-src" in value]
    assert policy and policy[0] is not None and policy[0].startswith("default-src 'none'")
    assert len(page) < 3_000_000


def test_every_reference_has_its_target_and_no_id_is_there_twice(page: str) -> None:
    attributes = Page(page).attributes
    ids = [value for _, name, value in attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {value[1:] for _, name, value in attributes if name == "href" and value and value[0] == "#"} <= set(ids)


def test_agents_and_headline_numbers_are_those_of_the_statistics(directory: Path, page: str) -> None:
    with Store(directory) as store:
        rows = store.rows()
    bounds = {measure.name: measure.bounds for measure in behaviour_measures()}
    text = "\n".join(Page(page).texts)
    for grouped in estimate_rows(rows.where(rows.measure == "success"), by=("agent",), bounds=bounds):
        estimate = grouped.estimate
        assert str(grouped.key["agent"]) in text
        assert short(estimate.value, "share") in text
        assert f"[{short(estimate.low, 'share')}, {short(estimate.high, 'share')}]" in text


def test_the_embedded_ledger_holds_every_estimate(directory: Path, page: str) -> None:
    found = re.search(r'<script type="application/json" id="ledger">(.*?)</script>', page, re.DOTALL)
    assert found
    numbers = json.loads(found[1])
    with Store(directory) as store:
        ledger = build_ledger(store.rows())
        assert numbers["content_hash"] == content_hash(store)
    for name, table in ledger.tables.items():
        columns = numbers["tables"][name]["columns"]
        entries = [dict(zip(columns, row, strict=True)) for row in numbers["tables"][name]["rows"]]
        assert len(entries) == len(table)
        for entry in entries:
            key = {tag: entry[tag] for tag in columns[1 : columns.index("unit")]}
            estimate = ledger.find(name, entry["measure"], **key)
            assert estimate is not None
            assert (entry["n"], entry["grids"], entry["method"]) == (estimate.n, estimate.clusters, estimate.method)
            assert entry["value"] == pytest.approx(estimate.value, rel=1e-6) or entry["value"] is None


def test_the_ledger_lists_agents_as_the_study_does_and_pools_over_steps(directory: Path) -> None:
    with Store(directory) as store:
        rows = store.rows()
    ledger = build_ledger(rows, agents=["random", "optimal"])
    assert ledger.agents == ("random", "optimal", "epsilon-greedy(0.5)")
    steps = rows.where((rows.measure == "action optimality") & (rows["agent"] == "random"))
    pooled = ledger.find("agent", POOLED, agent="random")
    assert pooled is not None and pooled.value == pytest.approx(float(steps.value.mean()))
    assert ledger.find("agent", POOLED, agent="nobody") is None


def test_hostile_text_is_shown_and_never_obeyed(tmp_path: Path) -> None:
    study = small_study(name=HOSTILE.replace("\x1b", "").replace("\u202e", ""), trajectories=2)
    directory = measured(tmp_path / "hostile", study, agents=[Talker(), *study.agents()[:1]])
    with Store(directory) as store:
        text = write_report(store, tmp_path / "page.html").read_text(encoding="utf-8")
    parsed = Page(text)
    assert parsed.tags.count("script") == 1 and "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text and "[red]x[/red]" in text
    assert "\x1b" not in text and "\u202e" not in text
    links = [value or "" for _, name, value in parsed.attributes if name in ("href", "src")]
    assert all(value.startswith(("#", "data:image/svg+xml;", "data:text/csv;")) for value in links)


@pytest.mark.parametrize("sizes", long_after(1, [{5: "small", 7: "nan"}, {5: 5, 7: HOSTILE}]))
def test_sizes_and_densities_that_are_text_stand_side_by_side_in_figures_and_tables(
    sizes: dict[int, str | int], tmp_path: Path
) -> None:
    worlds = [{"kind": "grid", "sizes": [5, 7], "densities": [0.0, 1.0], "count": 1}]
    run(small_study(worlds=worlds, agents=[{"kind": "random"}], trajectories=1), tmp_path / "numbers")
    with Store(tmp_path / "numbers") as store:
        write_jsonl(store.episodes(), tmp_path / "all.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if line.get("type") == "world":
            line["tags"] |= {"size": sizes[line["tags"]["size"]], "density": f"d{line['tags']['density']:g}"}
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (tmp_path / "log.jsonl").write_text(text, encoding="utf-8")
    assert import_into(tmp_path / "log.jsonl", tmp_path / "run").exit_status == 0
    with Store(tmp_path / "run", "w") as store:
        store.put_rows(measure_store(store), source="behaviour")
        page = write_report(store, tmp_path / "page.html").read_text(encoding="utf-8")
    assert not Page(page).open and "\x1b" not in page and "<script>alert" not in page
    section = page[page.index('id="size-and-density"') :]
    section = section[: section.index("</section>")]
    assert section.count("<svg") == 4
    for name in ("d0", "d1", *(str(size)[:19] for size in sizes.values())):
        assert f">{name}" in unescape(section), name


def test_worlds_with_keys_are_told_apart_from_their_controls(tmp_path: Path) -> None:
    worlds = [{"kind": "key-no-door", "count": 4, "control": True}]
    study = small_study(worlds=worlds, agents=[{"kind": "key-lured"}, {"kind": "optimal"}], trajectories=2)
    directory = measured(tmp_path / "keys", study)
    with Store(directory) as store:
        text = write_report(store, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "matched control without key" in text
    assert 'id="goals"' in text and "control without key" in text and 'id="size-and-density"' not in text
    assert 'id="keys"' not in text and 'id="conditions"' not in text  # both stand in that one section


def test_rows_must_cover_the_episodes(tmp_path: Path) -> None:
    study = small_study(agents=[{"kind": "optimal"}], trajectories=1)
    run(study, tmp_path)
    with Store(tmp_path) as store, pytest.raises(ValueError, match=r"12 of 12.*goalscope measure"):
        write_report(store, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_run_without_episodes_has_no_report(tmp_path: Path) -> None:
    with Store(tmp_path, "w") as store, pytest.raises(ValueError, match="episodes"):
        write_report(store, tmp_path / "page.html")


def test_every_measure_of_behaviour_has_a_definition_with_its_source() -> None:
    lacking = [measure.name for measure in behaviour_measures() if definition_of(measure.name) is None]
    assert not lacking
    assert definition_of("somebody's own measure") is None


def test_a_ledger_needs_rows_with_agents() -> None:
    with pytest.raises(ValueError, match="rows"):
        build_ledger(Rows.from_rows([]))
    with pytest.raises(ValueError, match="its agent"):
        build_ledger(Rows.from_columns(measure="success", unit="share", value=[1.0], cluster=["g"]))
