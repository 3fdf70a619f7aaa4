"""The five behavioural studies, tiny: every number on the page and in the files carries what it takes to judge it."""

import csv
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from command_line import call
from families import long_after
from goalscope.runs import Store, content_hash

SMALL = {
    "baseline": "--sizes 7,9 --densities 0,0.6 --count 2 --trajectories 2 --agents optimal;epsilon-greedy(0.3)",
    "iso-difficulty": "--sizes 7 --densities 0.6 --count 3 --trajectories 2 --agents optimal;side-biased(0.3,_left)",
    "key-door": "--count 3 --agents optimal;key-lured;random",
    "two-path": "--count 3 --agents optimal;key-lured;random",
    "fog": "--sizes 7 --densities 0.6 --count 3 --trajectories 2 --agents optimal;forgetful(0.3,_6);random",
}
TITLES = {
    "baseline": "Performance by size and density",
    "iso-difficulty": "Iso-difficulty transforms",
    "key-door": "Instrumental and implicit goals",
    "two-path": "Choice of path",
    "fog": "Under fog",
}
WORDS = {  # headings of tables that hold no estimates
    ("measure", "reason", "cases", "where"),
    ("measure", "unit", "definition", "source"),
    ("agent", "description"),
}
COUNTS = {"grids", "Grids", "Trajectories"}


@dataclass
class Entry:
    """A cell as the page shows it: its text, what stands below it, and what hovering tells."""

    text: str = ""
    below: str = ""
    hint: str = ""


@dataclass
class Read:
    """A table of the page."""

    plain: bool
    headings: list[Entry] = field(default_factory=list)
    rows: list[list[Entry]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Tables(HTMLParser):
    """Reads all tables of a page, and the notes below each."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[Read] = []
        self._open: list[str] = []
        self._cell: Entry | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in ("meta", "link", "br", "img"):
            return
        self._open.append("notes" if tag == "ul" and given.get("class") == "notes" else tag)
        if tag == "table":
            self.found.append(Read(plain=given.get("class") == "plain"))
        elif tag == "tr" and "thead" not in self._open:
            self.found[-1].rows.append([])
        elif tag in ("td", "th"):
            self._cell = Entry(hint=given.get("title", ""))
            (self.found[-1].headings if "thead" in self._open else self.found[-1].rows[-1]).append(self._cell)
        elif tag == "li" and "notes" in self._open:
            self.found[-1].notes.append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open:
            self._open.pop()
        if tag in ("td", "th"):
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None and self._open[-1] == "span":
            self._cell.below += data
        elif self._cell is not None:
            self._cell.text += data
        elif self._open[-2:] == ["notes", "li"]:
            self.found[-1].notes[-1] += data


def numeric(text: str) -> bool:
    return re.match(r"^[−+<≥ ]*\d", text) is not None


def is_interval(text: str) -> bool:
    return re.fullmatch(r"\[[−∞\d.]+, [−∞\d.]+\]", text) is not None


def check_estimates(table: Read) -> int:
    """Check a table whose cells are estimates; return how many it holds."""
    checked = 0
    for row in table.rows:
        for heading, cell in zip(table.headings[1:], row[1:], strict=True):
            if heading.text in COUNTS or row[0].text in COUNTS or cell.text == "–":
                assert cell.text == "–" or cell.text.isdigit()
                continue
            if heading.below == "counts":
                assert re.fullmatch(r"[\d,]+ / [\d,]+", cell.text) and re.search(r"\d+ grids?$", cell.hint), cell
                continue
            checked += 1
            if cell.text == "undefined":
                assert cell.hint, (heading, row[0])
                continue
            assert re.match(r"(\d+ of )?\d+ grids?, n = \d+, \S", cell.hint), (heading, row[0], cell)
            # Where fewer grids stand behind it than the last column says, their number follows.
            below = re.sub(r"(only )?\d+ of \d+ grids?$", "", cell.below)
            assert is_interval(below) or (below == "no interval" and "; " in cell.hint), cell
    return checked


def check_lines(table: Read) -> int:
    """Check a table with one estimate or comparison a line; return how many it holds."""
    place = {heading.text: index for index, heading in enumerate(table.headings)}
    if tuple(place) in WORDS:
        return 0
    assert {"95 % interval", "n", "grids"} <= set(place), list(place)
    methods = {note.split(":")[0] for note in table.notes if ": method: " in note}
    for row in table.rows:
        texts = [cell.text for cell in row]
        ends = texts[place["95 % interval"]]
        assert is_interval(ends) or ends == "undefined", texts
        assert texts[place["n"]].isdigit() and texts[place["grids"]].isdigit()
        if "notes" in place:
            marks = texts[place["notes"]].split(", ")
            assert len(methods & set(marks)) == 1, (texts, table.notes)
            explained = len(marks) > 1
        else:
            assert texts[place["method"]], texts
            explained = texts[place["note"]] != ""
        assert ends != "undefined" or explained, texts
    return len(table.rows)


def check_record(one: dict[str, Any]) -> None:
    """Check a comparison as it stands in a JSON file."""
    assert one["n"] >= one["grids"] >= 0 and one["method"] and one["unit"] is not None
    assert (one["low"] is None) == (one["high"] is None)
    if one["low"] is None or one["effect"] is None:
        assert one["note"], one
    else:
        assert one["low"] <= one["difference"] <= one["high"] and one["low"] < one["high"]


@pytest.mark.parametrize(
    "name",
    long_after(1, [pytest.param(name, marks=[pytest.mark.full] * (name in ("baseline", "fog"))) for name in SMALL]),
)
def test_every_number_of_a_study_carries_n_grids_interval_and_method(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = [word.replace("_", " ") for word in SMALL[name].split()]
    call("run", name, *options, "--out", run)
    pages, hashes, files = [], [], []
    for turn in ("first", "second"):
        folder = tmp_path / turn
        call("measure", run)
        call("report", run, "--out", folder / "page.html", "--ledger", folder / "ledger.json")
        flags = ["--transforms"] if name == "iso-difficulty" else ["--margin", "success=0.2"]
        call("compare", run, *flags, "--json", folder / "a.json", "--csv", folder / "a.csv")
        pages.append((folder / "page.html").read_text(encoding="utf-8"))
        files.append([(folder / end).read_bytes() for end in ("ledger.json", "a.json", "a.csv")])
        with Store(run) as store:
            hashes.append(content_hash(store))
    assert pages[0] == pages[1] and files[0] == files[1] and hashes[0] == hashes[1]
    ids = re.findall(r' id="([^"]+)"', pages[0])
    assert len(ids) == len(set(ids))
    titles = re.findall(r"<h2>([^<]*)", pages[0])
    assert titles[0] == "Results" and [own for own in TITLES.values() if own in titles] == [TITLES[name]]
    tables = Tables(pages[0]).found
    assert sum(map(check_lines, (table for table in tables if table.plain))) > 10
    assert sum(map(check_estimates, (table for table in tables if not table.plain))) > 8
    ledger = json.loads(files[0][0])
    for table in ledger["tables"].values():
        for values in table["rows"]:
            one = dict(zip(table["columns"], values, strict=True))
            assert one["n"] >= one["grids"] and one["method"] and one["confidence"] == 0.95
            assert one["low"] is not None or one["note"], one
    compared = json.loads(files[0][1])["comparisons"]
    assert compared
    for one in compared:
        check_record(one)
    lines = list(csv.DictReader(files[0][2].decode().splitlines()))
    assert len(lines) == len(compared) and all({"n", "grids", "low", "high", "method"} <= set(line) for line in lines)
    assert [line["n"] for line in lines] == [str(one["n"]) for one in compared]
