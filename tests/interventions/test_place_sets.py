"""Sets of places: a planted circuit is found, on half of the grids, and its effect is measured on the others."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_pairs import ACTIONS, moved_goals, pair_of, reader
from handmade import VOCABULARY, A, B, prompt, redundant

from command_line import call
from families import long_after
from goalscope.activations.sites import Sites
from goalscope.interventions import Batch, Pair, generate, passes
from goalscope.interventions.minimal import minimal_set
from goalscope.interventions.patching import CHANGED, FOLLOWS
from goalscope.interventions.place_sets import ALL, FOUND, KIND, PLACE, PlaceSets, _halves, _Work
from goalscope.probing.scores import chosen
from goalscope.report import RunData, sections_of
from goalscope.rows import Rows
from goalscope.runs import Store, Study, run

LAYERS = 8
CIRCUIT = [frozenset(pair) for pair in combinations([("changed", 1), ("changed", 3), ("changed", 5)], 2)]
"""The model of `redundant` acts by two of three votes, each of which the site holds after one block."""


@pytest.mark.parametrize("seed", range(40))
def test_the_search_ends_in_one_of_the_planted_minimal_sets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = list(range(12))
    planted = [frozenset(rng.choice(12, size=rng.integers(1, 5), replace=False).tolist()) for _ in range(3)]
    minimal = {one for one in planted if not any(other < one for other in planted)}
    asked = 0

    def values_of(sets: Sequence[frozenset[int]]) -> list[float]:
        nonlocal asked
        asked += len(sets)
        return [float(any(one <= each for one in planted)) for each in sets]

    assert minimal_set(parts, values_of, 0.9, rng=np.random.default_rng(seed)) in minimal
    assert asked < 200  # of 4096


def test_a_graded_value_is_climbed_and_what_all_parts_cannot_reach_is_refused() -> None:
    weights = np.array([0.1, 0.5, 0.0, 0.3, 0.1])

    def values_of(sets: Sequence[frozenset[int]]) -> list[float]:
        return [float(weights[sorted(each)].sum()) for each in sets]

    rng = np.random.default_rng(0)
    assert minimal_set(range(5), values_of, 0.75, rng=rng) == {1, 3}
    assert minimal_set(range(5), values_of, 0.0, rng=rng) == frozenset()
    with pytest.raises(ValueError, match=r"all 5 parts together must have a value of 1.5, got 1"):
        minimal_set(range(5), values_of, 1.5, rng=rng)


class Finder:
    """Two sites of the prompts of `handmade`: the one that the circuit goes through, and a filler."""

    def __init__(self, *_: Any) -> None: ...

    def find(self, step: Any, grid: Any) -> Sites:
        return Sites(positions={"grid": np.array([4]), "pre": np.array([3])}, missing={})


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Pair]]:
    """The model and its pairs."""
    monkeypatch.setattr(passes, "SiteFinder", Finder)
    model = redundant(reader(VOCABULARY))
    prompts = [prompt(A), prompt(B)]
    written = [one.tokens[0] for one in generate(model, [Batch(prompts=prompts)], max_tokens=1)[0].outputs]
    assert len({ACTIONS[token] for token in written}) == 2
    views = moved_goals(6, 3)
    pairs = [pair_of((one, other), cell, prompts, written, f"grid {at}") for at, (one, other, cell) in enumerate(views)]
    return model, pairs


def _set(rows: Rows) -> frozenset[tuple[str, int]]:
    return frozenset((str(row.tags["site"]), int(str(row.tags["layer"]))) for row in chosen(rows, measure=PLACE))


@pytest.mark.parametrize("seed", long_after(1, range(5)))
def test_a_planted_circuit_is_found_and_holds_on_other_pairs(planted: tuple[Any, list[Pair]], seed: int) -> None:
    model, pairs = planted
    settings = PlaceSets(sites=("changed", "pre"), seed=seed, random=20)
    work = _Work(model, settings, 1)
    assert len(work.places) == 2 * LAYERS
    first, held_out = _halves(pairs, seed)
    assert len(first) == len(held_out) == 3 and not {one.cluster for one in first} & {one.cluster for one in held_out}
    found = _set(work.searched(first))
    assert found in CIRCUIT
    control = replace(held_out[0], control=True)
    for pair in held_out:
        rows = work.rows(
            pair, {FOUND: found, ALL: frozenset(work.places), "one": frozenset([("changed", 1)])}, "held out"
        )
        follows = {
            (row.tags["set"], row.tags["patch"]): row.value
            for row in chosen(rows, measure=FOLLOWS, direction="original into counterfactual")
        }
        assert follows[FOUND, "source"] == follows[ALL, "source"] == 1 and follows["one", "source"] == 0
        assert follows[FOUND, "random set"] <= 0.2 and (ALL, "random set") not in follows
    assert set(chosen(work.rows(control, {FOUND: found}, "held out"), measure=CHANGED)["pairs"].tolist()) == {"control"}


def test_a_set_of_several_sites_is_the_union_of_their_places(planted: tuple[Any, list[Pair]]) -> None:
    """A set with two sites in a layer writes both; the cells that differ are cells: no token is written twice."""
    model, pairs = planted
    settings = PlaceSets(
        sites=("changed", "pre"), sets={"union": (("changed", 1), ("grid", 1), ("pre", 1), ("pre", 3))}
    )
    work = _Work(model, settings, 1)
    (pair_sites,) = [work._reader.together(pairs[0], dict(enumerate(pairs[0].sides)), work._sites)]
    assert pair_sites is not None
    edits = list(work._edits(pairs[0], (work.named["union"], "source"), 2, pair_sites[0][1], pair_sites[1][1]))
    assert [(edit.layer, edit.positions.tolist()) for edit in edits] == [(1, [3, 4]), (3, [3])]


def test_what_cannot_be_searched_is_refused(planted: tuple[Any, list[Pair]]) -> None:
    model, pairs = planted
    with pytest.raises(ValueError, match="got elsewhere in mine"):
        _Work(model, PlaceSets(sets={"mine": (("elsewhere", 1),)}), 1)
    with pytest.raises(ValueError, match="8 places together move an action, here they move none in 6 pairs"):
        _Work(model, PlaceSets(sites=("pre",)), 1).searched(pairs)


@pytest.mark.full
def test_the_command_finds_a_set_in_theseus_and_does_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    worlds = [{"kind": "grid", "sizes": [7], "densities": [0.0], "count": 8}]
    agents = [{"kind": "chat", "model": "theseus", "max_tokens": 64}]
    run(Study.parse({"worlds": worlds, "agents": agents, "trajectories": 1, "horizon": {"steps": 1}}), out)
    asked = ["patch", out, "--kind", "place-sets", "--layers", "2,6,7", "--sites", "changed", "--pairs", 4]
    asked += ["--set", "pairs.moved=[goal]", "--set", "pairs.controls=1", "--set", "random=3"]
    asked += ["--set", "sets={late: [[changed, 6], [changed, 7]]}"]
    shown = call(*asked)
    assert "found: changed 2" in shown and "held out" in shown and "late" in shown
    with Store(out) as store:
        rows = chosen(store.rows(), intervention="place-sets")
    assert _set(rows) == {("changed", 2)}
    held = chosen(rows, measure=FOLLOWS, half="held out", patch="source")
    found = chosen(held, set=f"{FOUND}: changed 2")
    assert set(found.value.tolist()) == {1.0} and len(found) == 4
    assert set(chosen(held, set="late").value.tolist()) == {0.0}
    assert not chosen(rows, measure=CHANGED, pairs="control", patch="source").value.any()
    monkeypatch.setattr("goalscope.interventions.place_sets.generate", None)
    call(*asked)
    call("report", out)
    with Store(out) as store:
        (section,) = sections_of(RunData.of(store), KIND)
    assert dict(section.facts)["found"] == "the cells that differ, layer 2"
    values = {str(row[0]): row[1].estimate.value for row in section.tables[0].rows}
    assert values == {"found by the search": 1.0, "late": 0.0, ALL: 1.0}


def test_a_pair_whose_unchanged_answer_falls_otherwise_is_left_out(planted: tuple[Any, list[Pair]]) -> None:
    model, pairs = planted
    first, second = pairs[0].sides
    swapped = replace(first, optimal=second.optimal), replace(second, optimal=first.optimal)
    work = _Work(model, PlaceSets(), 1)
    assert not len(work.rows(replace(pairs[0], sides=swapped), {FOUND: CIRCUIT[0]}, "all")) and work.left_out == 2
