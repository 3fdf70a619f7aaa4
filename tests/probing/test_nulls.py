"""Where there is nothing to be said, the sentences on probes say something no more often than their level allows."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope.agents.models.base import RANDOM_WEIGHTS

nulls: Any = importlib.import_module("benchmarks.nulls")
KINDS, Said, limit, one_null, table, wrong = (
    getattr(nulls, name) for name in ("KINDS", "Said", "limit", "one_null", "table", "wrong")
)
Kept = Mapping[tuple[str, int], list[Any]]
FEW, MANY = 2, 50  # of each of the four kinds


def check(kept: Kept, count: int) -> None:
    """The count of wrong words of each rule is within the binomial law, their share within two standard errors."""
    lines = table(kept)
    assert {line[0] for line in lines} == set(KINDS)
    for kind, rival, seeds, _, share, nominal, error, rule, most, allowed in lines:
        assert seeds == count
        if rival in RANDOM_WEIGHTS:
            continue  # a table shows the difference to one kind alone, a sentence says nothing of it
        assert most <= allowed, (kind, rival, rule, most, allowed)
        assert share <= nominal + error or count < MANY, (kind, rival, share, nominal, error)


@pytest.mark.full
def test_nothing_is_said_of_nothing_more_often_than_the_level_allows() -> None:
    kept = {(kind, seed): one_null(kind, seed, ("distance",)) for kind in KINDS for seed in range(FEW)}
    check(kept, FEW)
    assert {one.rule.split(":")[0] for said in kept.values() for one in said} == {"distance"}


@pytest.mark.full
def test_all_rules_that_print_sentences_are_asked() -> None:
    said = one_null("twins", 0)
    assert {one.rule.split(":")[0] for one in said} == set(nulls.SECTIONS)
    rivals = {one.rival for one in said}
    assert {"readable", "by training", "permuted", "initial", "default-init", "shuffled"} <= rivals
    assert len([one for one in said if one.outcome != "unknown"]) > 80
    # The suite sees what there is: twins do hold the map.
    assert any(one.rival == "shuffled" and one.outcome == "above" for one in said)


@pytest.mark.full
def test_two_hundred_nulls(tmp_path: Path) -> None:
    check({(kind, seed): one_null(kind, seed) for kind in KINDS for seed in range(MANY)}, MANY)


def test_the_table_counts_what_is_wrong() -> None:
    assert limit(200, 0.05) == 21 and limit(200, 0.025) == 13
    assert wrong("noise", Said("a", "permuted", "below")) and wrong("noise", Said("a", "shuffled", "below"))
    assert not wrong("noise", Said("a", "position alone", "below")) and wrong("noise", Said("a", "readable", "above"))
    assert wrong("twins", Said("a", "readable", "above")) is None and wrong("twins", Said("a", "by training", "above"))
    kept = {("noise", at): [Said("a", "permuted", "above" if at < 3 else "none")] for at in range(10)}
    ((kind, rival, seeds, decisions, share, nominal, error, rule, most, allowed),) = table(kept)
    assert (kind, rival, seeds, decisions, rule, most, allowed) == (
        "noise",
        "permuted",
        10,
        10,
        "a",
        3,
        limit(10, 0.05),
    )
    assert share == pytest.approx(0.3) and nominal == 0.05 and error == pytest.approx(2 * np.sqrt(2.1) / 10)


def test_a_line_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    file = tmp_path / "nulls.jsonl"
    file.write_text('["noise", 0, [["a", "permuted", "none"]]]\n["noise", 1, [["a", "per', encoding="utf-8")
    assert nulls.read(file) == {("noise", 0): [Said("a", "permuted", "none")]}
    assert nulls.read(None) == {}
