"""Links of the documentation lead somewhere, and its pages are found from the README."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "benchmarks/README.md", "benchmarks/papers.md")]
PAGES += [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted(ROOT.glob("docs/*.md"))
FENCED = re.compile(r"^[ ]*```.*?^[ ]*```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the names that links to the headings of a page have: small letters, blanks as hyphens, no punctuation."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[tuple[Path, str]]:
    """Return the files and headings that a page links to; addresses on the web are left out."""
    found = (target.partition("#") for target in LINK.findall(prose(page)) if not target.startswith("http"))
    return [((page.parent / file).resolve() if file else page, heading) for file, _, heading in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    assert not [target for target, _ in links(page) if not target.exists()]
    assert not [f"{target.name}#{name}" for target, name in links(page) if name and name not in anchors(target)]


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            ahead += [target for target, _ in links(page)]
    assert set(PAGES) == reached


def test_the_line_that_two_pages_explain_is_one_that_is_printed() -> None:
    text = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    block = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(block, "statistics.md", "exec"), {})
    stated = re.search(r"^# (0\.85 .*)$", block, re.MULTILINE)
    assert stated and stated.group(1) == shown.getvalue().splitlines()[0]
    assert f"`{stated.group(1)}`" in (ROOT / "docs" / "start.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_no_page_says_that_training_made_something_readable(page: Path) -> None:
    """The control of the studies is the library's default initialisation, which cannot show that."""
    text = " ".join(prose(page).split()).lower()
    assert not re.findall(r"training (?:put|gives|has no part)[^.]*\.|untrained (?:model|twin)[^.|]*", text)


def claims_of_use(text: str) -> list[str]:
    """The sentences that say of something read by a probe that the model uses it, but for what is denied or asked."""
    sentences = re.split(r"(?<=[.:;!?|])\s+", " ".join(text.split()))
    subject = r"(?:theseus|ariadne|model|agent|network)s?"
    used = rf"\b{subject}\b (?:\w+ly )?(?:uses?|used|relies on|acts? on|is guided by)\b|\bused by (?:the )?{subject}\b"
    read = r"\b(?:probes?|decod\w+|readable|activations?|vectors?|represent\w*|beliefs?)\b"
    denied = r"\b(?:not|never|whether|no|nothing|alone can|would|if)\b"
    return [
        one
        for one in map(str.lower, sentences)
        if re.search(used, one) and re.search(read, one) and not re.search(denied, one)
    ]


def test_what_is_a_claim_of_use_is_seen() -> None:
    assert claims_of_use("The probe shows that the model uses its map of the walls.")
    assert claims_of_use("Its beliefs are decoded; these activations are used by Theseus to plan.")
    assert not claims_of_use("That a probe succeeds does not show that Theseus uses it. The agent uses tools.")


SAID = [
    *PAGES,
    *sorted((ROOT / "src" / "goalscope" / "report").rglob("*.py")),
    *sorted((ROOT / "src").rglob("card*.md")),
]


@pytest.mark.parametrize("page", SAID, ids=lambda page: str(page.relative_to(ROOT)))
def test_nowhere_is_it_said_of_what_a_probe_reads_that_it_is_used(page: Path) -> None:
    """Interventions alone show that."""
    assert claims_of_use(prose(page) if page.suffix == ".md" else page.read_text(encoding="utf-8")) == []
