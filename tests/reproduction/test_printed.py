"""What is said to be printed, compared with the papers themselves; and the sizes that printed numbers allow."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from goalscope.papers import items
from goalscope.papers.printed import sizes_that_fit

REPOSITORY = Path(__file__).parents[2]
PAPERS = REPOSITORY.parent / "shared" / "papers"
TEXTS = {
    "telos": ("behavioural-and-representational-evaluation", "behavioural-and-representational-evaluation-post"),
    "exploration": ("exploration-exploitation-errors",),
    "meg": ("measuring-goal-directedness",),
}
beside = pytest.mark.skipif(not PAPERS.is_dir(), reason="the texts of the papers are not beside the checkout")


def plain(text: str) -> str:
    """Text on one line, without marks of emphasis, and words joined that were broken at the end of a line."""
    return " ".join(re.sub(r"(?<=[a-z])-\s*\n\s*(?=[a-z])", "", text).replace("*", "").split())


def text_of(paper: str) -> str:
    return " ".join(plain((PAPERS / f"{name}.txt").read_text(encoding="utf-8")) for name in TEXTS[paper])


def quotations() -> Iterator[tuple[str, str]]:
    """Each quotation of the page on published numbers, with the paper of its line."""
    paper = ""
    for line in (REPOSITORY / "docs" / "corrections.md").read_text(encoding="utf-8").splitlines():
        first = line.split("|")[1].strip() if line.startswith("| ") else line
        found = [
            name for name, said in (("telos", "telos paper"), ("exploration", "exploration paper")) if said in first
        ]
        paper = found[0] if found else "meg" if "MEG paper" in first else paper
        if line.startswith("## 4"):
            paper = "exploration"
        yield from ((paper, quoted) for quoted in re.findall("“([^”]*)”", line))


@beside
def test_every_quotation_is_in_its_paper() -> None:
    found = list(quotations())
    assert len(found) >= 12
    for paper, quoted in found:
        assert plain(quoted) in text_of(paper), (paper, quoted)


@beside
def test_every_printed_number_is_in_its_paper() -> None:
    checked = 0
    for name, item in items().items():
        numbers = set(re.findall(r"\d[\d,]*\.?\d*", text_of(name.split()[0])))
        for reading in item.readings:
            for published in (reading.published, *reading.others.values()):
                values = published.values() if isinstance(published, dict) else [published]
                for value in (one for one in values if isinstance(one, int | float)):
                    forms = {
                        f"{abs(value):.{digits}f}" for digits in range(4) if abs(round(value, digits) - value) < 1e-9
                    }
                    assert forms & numbers, (name, reading.label, value)
                    checked += 1
    assert checked > 100


def test_a_size_fits_all_printed_numbers_of_its_row() -> None:
    """By hand: 3 of 20 are 15.0 %, and a mean of three whole numbers ends in .0, .3 or .7."""
    assert 20 in sizes_that_fit(["15.0"], means={"142.3": "15.0"})
    assert 20 not in sizes_that_fit(["15.0"], means={"142.5": "15.0"}) and 40 in sizes_that_fit(
        [], means={"142.5": "15.0"}
    )
    assert sizes_that_fit(["33.3"], most=10) == [3, 6, 9] and sizes_that_fit(["33.30"], most=10) == []
    assert sizes_that_fit(["17"], most=12) == [6, 12] and sizes_that_fit(["0.0", "100.0"], most=3) == [1, 2, 3]
    assert sizes_that_fit([], means={"4.0": "0.0"}, most=50) == []  # no case, no mean
    literal = [n for n in range(1, 101) if {"98.9", "17.0"} <= {f"{100 * k / n:.1f}" for k in range(n + 1)}]
    assert sizes_that_fit(["98.9", "17.0"]) == literal
    with pytest.raises(ValueError, match="got none"):
        sizes_that_fit([])
