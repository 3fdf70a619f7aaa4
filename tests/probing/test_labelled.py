"""Probes of anybody's labels: planted codes are read, nothing is read where nothing is, hostile input is refused."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from families import long_after
from goalscope.inside.probing import LabelProbe, probe

PAGE = (Path(__file__).parents[2] / "docs" / "probes.md").read_text(encoding="utf-8")
GROUPS, ROWS, WIDTH = 60, 4, 16
NAMES = np.repeat([f"prompt {index}" for index in range(GROUPS)], ROWS)


def drawn(seed: int) -> tuple[Any, Any, np.random.Generator]:
    """Return noise, labels and the generator."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(GROUPS * ROWS, WIDTH)), rng.integers(3, size=GROUPS * ROWS), rng


def planted(seed: int, size: float = 3.0) -> tuple[Any, Any, np.random.Generator]:
    noise, labels, rng = drawn(seed)
    return noise + size * np.eye(WIDTH)[labels], labels, rng


def test_a_planted_code_is_read_above_every_control_and_said_so() -> None:
    inputs, labels, rng = planted(0)
    networks = {("permuted", draw): rng.normal(size=inputs.shape) for draw in range(3)}
    colours = np.array(["red", "green", "blue"])[labels]
    place = np.tile(np.arange(ROWS), GROUPS)
    found = probe(inputs, colours, groups=NAMES, position=place, random=networks, label="the colour")
    assert found.kind == "category" and found.classes == ("blue", "green", "red")
    assert set(found.differences) == {"frequencies", "shuffled", "position", "permuted"}
    assert all(one.low > 0 for one in found.differences.values())
    assert found.sentence.startswith("the colour is read above") and "not shown" not in found.sentence
    frame = found.to_frame()
    own = frame[(frame["control"] == "none") & (frame["less"] == "")].set_index("measure")
    assert own.loc["accuracy", "value"] > 0.8 and own.loc["bits gained", "value"] > 0.8
    assert "accuracy" in found._repr_html_() and found.sentence in str(found)


def test_numbers_are_read_too_and_a_position_that_tells_as_much_is_named() -> None:
    noise, _, rng = drawn(1)
    place = np.tile(np.arange(ROWS, dtype=float), GROUPS)
    size = place + 0.3 * rng.normal(size=len(place))
    inputs = noise.copy()
    inputs[:, 0] = place + 0.1 * rng.normal(size=len(place))
    found = probe(inputs, size, groups=NAMES, position=place, label="the size")
    assert found.kind == "number" and found.differences["shuffled"].low > 0.5
    assert "it is not shown to be above the position alone" in found.sentence
    assert "No random networks stood beside it" in found.sentence


def test_a_random_network_that_holds_as_much_is_named() -> None:
    inputs, labels, rng = planted(2)
    networks = {("default-init", draw): inputs + 0.1 * rng.normal(size=inputs.shape) for draw in range(3)}
    found = probe(inputs, labels, groups=NAMES, random=networks)
    assert "not shown to be above random networks (default-init)" in found.sentence


def rate_of_claims(seeds: range, make: Any) -> float:
    found = [make(seed) for seed in seeds]
    assert all(isinstance(one, LabelProbe) for one in found)
    return float(np.mean(["is read above" in one.sentence for one in found]))


def unrelated(seed: int) -> LabelProbe:
    inputs, labels, _ = drawn(seed)
    return probe(inputs, labels, groups=NAMES, shuffles=3)


def of_the_group(seed: int) -> LabelProbe:
    """Activations that name their group, labels that are the group's: rows of both sides would tell it all."""
    noise, _, rng = drawn(seed)
    centres, labels = 5 * rng.normal(size=(GROUPS, WIDTH)), rng.integers(2, size=GROUPS)
    return probe(noise * 0.1 + np.repeat(centres, ROWS, axis=0), np.repeat(labels, ROWS), groups=NAMES)


def lopsided(seed: int) -> LabelProbe:
    """Nine of ten rows have one label: accuracy is high, and says nothing."""
    inputs, _, rng = drawn(seed)
    return probe(inputs, rng.random(len(inputs)) < 0.1, groups=NAMES, shuffles=3)


def numbers(seed: int) -> LabelProbe:
    inputs, _, rng = drawn(seed)
    return probe(inputs, rng.standard_t(2, size=len(inputs)), groups=NAMES, shuffles=3)


@pytest.mark.parametrize("make", long_after(1, [unrelated, of_the_group]))
def test_where_nothing_is_nothing_is_claimed(make: Any) -> None:
    assert rate_of_claims(range(6), make) == 0


@pytest.mark.full
@pytest.mark.parametrize("make", [unrelated, of_the_group, lopsided, numbers])
def test_where_nothing_is_claims_are_as_rare_as_their_level_says(make: Any) -> None:
    assert rate_of_claims(range(120), make) <= 0.05


def test_hostile_input_is_refused_with_what_must_hold() -> None:
    inputs, labels, _ = planted(3)
    broken = inputs.copy()
    broken[7, 2] = np.nan
    twice = inputs.copy()
    twice[-1] = twice[0]
    sizes = labels.astype(float)
    sizes[3] = np.inf
    count = len(labels)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"X": broken}, "row 7"),
        ({"y": np.zeros(count, dtype=int)}, "'0' alone"),
        ({"y": np.zeros(count)}, "must vary"),
        ({"y": sizes}, "row 3"),
        ({"y": [None, *labels[1:]]}, "got None"),
        ({"y": labels[:-1]}, "one label per row"),
        ({"y": [f"word {row}" for row in range(count)]}, "recur"),
        ({"y": np.arange(1000) % 400, "X": np.random.default_rng(0).normal(size=(1000, 2)), "groups": None}, "256"),
        ({"y": [str(one) for one in labels], "kind": "number"}, "'number' must be numbers"),
        ({"kind": "colour"}, "category or number"),
        ({"groups": ["all"] * count}, "4 groups"),
        ({"groups": NAMES[:-1]}, "groups .*240.*got 239"),
        ({"X": twice}, "rows 0 and 239"),
        ({"random": {("permuted", 0): inputs}}, "another network"),
        ({"random": {("permuted", 0): inputs[:-1]}}, "another network"),
        ({"position": np.zeros((count, 2, 2))}, "position must"),
        ({"X": np.zeros(3)}, "N, D"),
        ({"shuffles": 0}, "shuffles"),
    ]
    for changes, words in cases:
        given: dict[str, Any] = {"X": inputs, "y": labels, "groups": NAMES, **changes}
        with pytest.raises(ValueError, match=words):
            probe(given.pop("X"), given.pop("y"), **given)


def test_few_groups_classes_seen_once_and_constant_columns_are_no_trouble() -> None:
    inputs, labels, _ = planted(4)
    inputs[:, 5] = 1.0
    names = np.array(["a", "b", "c", "d", "e"])[np.arange(len(labels)) % 5]
    few = probe(inputs, np.where(np.arange(len(labels)) == 0, 9, labels), groups=names)
    assert few.tested == 2
    again = probe(inputs, np.where(np.arange(len(labels)) == 0, 9, labels), groups=names)
    assert [one.estimate.value for one in few.scores] == [one.estimate.value for one in again.scores]
    alone = probe(inputs, labels)
    assert alone.groups == len(labels) and "independent" in alone.notes[0]


def test_the_script_of_the_page_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = [one for one in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "import probe\n" in one]
    assert len(code.splitlines()) <= 30
    exec(compile(code, "probes.md", "exec"), {})
    assert "the tense is read above" in capsys.readouterr().out
