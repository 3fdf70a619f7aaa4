"""The examples in the pages on MEG and on published numbers print what stands beside them."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from families import long_after

DOCS = Path(__file__).parents[2] / "docs"
PASSED = "## A key that is picked up in passing"
PRINTED = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)


@pytest.mark.parametrize("name", long_after(1, ["meg.md", "worlds.md", "corrections.md", "meg-runs.md"]))
def test_examples_print_what_the_page_says(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    if name == "corrections.md":
        text += (DOCS.parent / "benchmarks" / "README.md").read_text(encoding="utf-8").partition(PASSED)[2]
    if name == "worlds.md":
        text = text.partition("## Cliff World")[2]
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    assert blocks
    checked = 0
    for block in blocks:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(compile(block, name, "exec"), names)
        expected = [line for found in PRINTED.findall(block) for line in found.split(" | ")]
        assert shown.getvalue().splitlines() == expected
        checked += len(expected)
    assert checked >= 3


def test_the_page_shows_what_the_decision_alone_tells() -> None:
    page = (DOCS / "meg.md").read_text(encoding="utf-8")
    own = page.partition("### What is computed")[2].partition("### Values that are limits")[0]
    assert 'target in ("D", ("S", "D"), "T")' in own and "the perfect mouse" in own.lower() and "n log A - H" in own
