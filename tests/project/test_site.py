"""The site: every page is in the navigation, measures are written from the registry, it builds, tutorials run."""

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from goalscope._ground import registry
from goalscope.measures import StepMeasure, behaviour_measures

site: Any = importlib.import_module("tools.site")
ROOT = Path(__file__).parents[2]
SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
GENERATOR = ROOT / ".venv-docs" / "bin" / "zensical"
KINDS = ["Home", "Tutorials", "Guides", "Explanations", "Reference"]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))


def named(entries: Any) -> Iterator[str]:
    """Yield the pages of a navigation."""
    for entry in entries if isinstance(entries, list) else entries.values():
        if isinstance(entry, str):
            yield entry
        else:
            yield from named(entry)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    found: dict[str, str] = site.pages()
    return found


def test_the_navigation_has_every_page_once(pages: dict[str, str]) -> None:
    assert sorted(named(SETTINGS["nav"])) == sorted([*pages, "gallery/index.md"])


def test_no_page_of_the_site_links_out_of_it(pages: dict[str, str]) -> None:
    for page, text in pages.items():
        for part in site._FENCE.split(text):
            if part.lstrip().startswith("```"):
                continue
            for _, target, _ in site._LINK.findall(part):
                there = (ROOT / "docs" / page).parent.joinpath(target).resolve().relative_to(ROOT / "docs").as_posix()
                assert there in pages or there.startswith(("gallery/", "images/")), (page, target)


def test_every_measure_has_a_place_and_an_equation(pages: dict[str, str]) -> None:
    found = {one.name: one for one in behaviour_measures() if isinstance(one, StepMeasure)}
    groups = {group: {one.name for one in site.measures_of(group)} for group in site.MORE["measures"]}
    assert sorted(name for names in groups.values() for name in names) == sorted(found)
    text = "".join(text for page, text in pages.items() if page.startswith("measures/"))
    assert all(one.text[1:] in text and one.source in text for one in found.values() if not one.base)
    assert all(f"`{one.name}`" in text for one in found.values() if one.base)
    for group, names in groups.items():
        equations = site.MORE["measures"][group]["equations"]
        assert sorted(equations) == sorted(name for name in names if not found[name].base) and all(equations.values())
        assert site.MORE["measures"][group]["picture"].split("/")[0] in site.MORE["gallery"]


def test_every_question_of_a_verdict_stands_on_its_page(pages: dict[str, str]) -> None:
    rules = [registry.resolve("claim", name) for name in registry.names("claim")]
    rows = [line.replace("\\", "") for line in pages["reference/questions.md"].splitlines()]
    assert len(rules) > 30
    for rule in rules:
        assert f"| {rule.question} | {rule.quantity} | {rule.threshold:g} | {rule.compared} |" in rows


@pytest.mark.parametrize("page", ["start.md", "evaluate.md"])
def test_questions_that_a_page_quotes_are_those_of_a_verdict_with_their_thresholds(page: str) -> None:
    rules = [registry.resolve("claim", name) for name in registry.names("claim")]
    thresholds = {rule.question: f"{rule.threshold:g}" for rule in rules}
    text = "".join(re.findall(r"```text\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL))
    rows = re.findall(r"^([A-Z][^?\n]+\?) +(.*)$", text, re.MULTILINE)
    assert len(rows) >= 4
    for question, rest in rows:
        # The decision on what an agent is after brings its own threshold; it is declared as 0.
        assert thresholds[question] in ("0", *rest.split()), question


def test_the_guide_to_a_verdict_lists_every_arm() -> None:
    text = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8").partition("### What is asked")[2]
    cells = [line.split("|")[1] for line in text.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([a-z]+)`", "".join(cells))) == set(registry.names("arm"))


def test_links_and_cells_become_those_of_the_site(tmp_path: Path) -> None:
    text = "[a](../SECURITY.md#b) [c](studies.md) `x` [d](../src/goalscope/_ground/own.py) ![e](images/f.svg)\n"
    shown = "[a](security.md#b) [c](studies.md) `x` d (`src/goalscope/_ground/own.py`) ![e](images/f.svg)\n"
    assert site.linked(text, "docs/start.md") == shown
    (tmp_path / "one.py").write_text("# %% [markdown]\n# # Title\n#\n# Words.\n\n# %%\nvalue = 1  # said\n")
    assert site.cells_of(tmp_path / "one.py") == [("markdown", "# Title\n\nWords."), ("code", "value = 1  # said")]


def test_every_page_is_also_plain_markdown_and_listed(pages: dict[str, str], tmp_path: Path) -> None:
    texts = {**pages, "gallery/index.md": "# Gallery\n"}
    for page, text in texts.items():
        path = tmp_path / "pages" / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    site.write_markdown(tmp_path)
    built = tmp_path / "html"
    listing = (built / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", listing, re.MULTILINE)
    assert sorted(listed) == sorted(site.markdown_name(page) for page in texts)
    assert re.findall(r"^## (.+)$", listing, re.MULTILINE) == KINDS
    for name in listed:
        text = (built / name).read_text(encoding="utf-8")
        assert not re.search(r"^:::", text, re.MULTILINE), name
        for part in site._FENCE.split(text):
            if not part.lstrip().startswith("```"):
                for _, target, _ in site._LINK.findall(part):
                    assert not target.endswith(".md") or (built / name).parent.joinpath(target).exists(), (name, target)
    interface = (built / "api" / "runs.html.md").read_text(encoding="utf-8")
    assert "## content_hash\n" in interface and "content_hash(store" in interface


@pytest.mark.full
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs_as_it_stands(path: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


@pytest.mark.full
@pytest.mark.skipif(not GENERATOR.exists(), reason="the generator of the site is not installed: make site installs it")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    site.main()
    command = [str(GENERATOR), "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    told = done.stdout + done.stderr
    assert done.returncode == 0 and not [word for word in ("griffe:", "mkdocstrings:", "arning") if word in told], told
    site.write_markdown()
    built = ROOT / "build" / "site" / "html"
    assert (built / "start.html.md").is_file() and (built / "llms.txt").is_file()
    assert all((built / page).with_suffix(".html").exists() for page in named(SETTINGS["nav"]) if page != "index.md")
    assert 'src="../gallery/grids/' in (built / "measures" / "performance.html").read_text(encoding="utf-8")
    assert (
        shutil.which("git") is None
        or not subprocess.run(
            ["git", "status", "--porcelain", "build"], cwd=ROOT, capture_output=True, text=True
        ).stdout
    )


def test_workflows_and_templates_name_no_address_and_ask_for_no_password() -> None:
    for path in [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml"]:
        text = path.read_text(encoding="utf-8")
        kind = {"workflows": "jobs", "ISSUE_TEMPLATE": "body"}.get(path.parent.name, "repos")
        assert yaml.safe_load(text)[kind] and "://" not in text and "secrets." not in text
