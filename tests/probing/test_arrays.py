"""Activations of others: every form of array is the same data, planted codes are found, hostile input is refused."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from goalscope._ground.rng import stream
from goalscope.inside.probing import (
    AGENT,
    GOAL,
    FitSettings,
    ProbeInputs,
    from_arrays,
    label_grid,
    probe_cells,
    summarise,
    true_map,
)
from goalscope.inside.probing.scores import chosen
from goalscope.worlds import Grid, State, generate, shown
from goalscope.worlds.planning import solve

COUNT, STEPS, WIDTH = 40, 2, 60


def worlds_and_states(count: int = COUNT) -> tuple[list[Grid], list[tuple[int, int]]]:
    """Two steps in each of some small mazes: at the start, and one optimal move on."""
    worlds, states = [], []
    for at in range(count):
        grid = generate(7, 0.3, rng=stream(at, "arrays"))
        assert grid.start is not None
        first = State(grid.start)
        move = next(iter(np.flatnonzero(solve(grid).optimal_in(first))))
        delta = ((-1, 0), (1, 0), (0, -1), (0, 1))[move]
        worlds += [grid] * STEPS
        states += [grid.start, (grid.start[0] + delta[0], grid.start[1] + delta[1])]
    return worlds, states


WORLDS, STATES = worlds_and_states()


def vectors(code: float = 1.0, worlds: list[Grid] = WORLDS) -> np.ndarray[Any, Any]:
    """Noise, and the goal's cell as a linear code."""
    rng = stream(0, "array vectors")
    goals = np.array([grid.goal for grid in worlds]) @ (7, 1)
    return np.asarray(rng.standard_normal((len(worlds), WIDTH)) + code * 12 * np.eye(WIDTH)[goals], dtype=np.float32)


def test_labels_grids_and_steps_are_those_of_the_worlds_and_states() -> None:
    data = from_arrays(vectors(), WORLDS, STATES)
    for row, (grid, cell) in enumerate(zip(WORLDS, STATES, strict=True)):
        assert np.array_equal(data.cells.labels[row], label_grid(shown(grid, State(cell)), 7).ravel())
    assert len(set(data.cells.cluster.tolist())) == COUNT and data.cells.frame == 7
    assert all(data.cells.cluster[at] == data.cells.cluster[at + 1] for at in range(0, len(WORLDS), 2))
    there = [at for at, (grid, cell) in enumerate(zip(WORLDS, STATES, strict=True)) if cell != grid.goal]
    found = true_map(data.cells.where(np.array(there)))
    assert [tuple(cell) for cell in found.agent.tolist()] == [STATES[at] for at in there]
    # Texts of the states as they were shown say the same.
    texts = [shown(grid, State(cell)).render() for grid, cell in zip(WORLDS, STATES, strict=True)]
    seen = from_arrays(vectors()[there], [texts[at] for at in there])
    assert np.array_equal(seen.cells.labels, data.cells.labels[there])
    alike = [data.cells.cluster[at] == data.cells.cluster[other] for at in there for other in there]
    assert alike == [one == other for one in seen.cells.cluster for other in seen.cells.cluster]
    names = [f"g{at % 7}" for at in range(len(WORLDS))]
    assert from_arrays(vectors(), WORLDS, STATES, grids=names).cells.cluster.tolist() == names
    named = from_arrays(vectors(), WORLDS, STATES, episodes=[f"e{at // 2}" for at in range(len(WORLDS))], frame=9)
    assert named.cells.step.tolist() == [0, 1] * COUNT and named.cells.frame == 9


def test_every_form_of_array_is_the_same_data() -> None:
    whole = np.round(vectors()).clip(-8, 8)  # exact in every format
    forms: list[Any] = [
        whole,
        whole.astype(np.float16),
        whole.astype(np.float64),
        whole.astype(np.int32),
        torch.tensor(whole, requires_grad=True),
        torch.tensor(whole).to(torch.bfloat16),
        scipy.sparse.csr_matrix(whole),
        scipy.sparse.coo_array(whole),
        {("pre", 0): whole},
    ]
    for form in forms:
        (one,) = from_arrays(form, WORLDS, STATES).activations
        assert one.vectors.dtype == np.float32 and np.array_equal(one.vectors[:, 0], whole)
    (three,) = from_arrays(whole.reshape(-1, 3, WIDTH // 3), WORLDS, STATES, site="post", layer=4).activations
    assert three.vectors.shape == (len(WORLDS), 3, WIDTH // 3) and (three.site, three.layer) == ("post", 4)


def test_a_planted_code_is_found_and_a_random_network_stands_beside() -> None:
    worlds, states = worlds_and_states(200)
    control = {("default-init", 0): vectors(0, worlds)}
    data = from_arrays(vectors(1, worlds), worlds, states, random=control, model="mine")
    settings = FitSettings(epochs=30, rate=1e-2, hidden=32)
    suite = (("percell", "none"), ("percell", CONTROL))
    rows = probe_cells(data, suite=suite, settings=settings).rows
    goal = chosen(rows, measure="localisation", reading="natural", **{"class": "goal"})
    found = {one.key["control"]: one.estimate.value for one in summarise(goal)}
    assert found["none"] > 0.9 > 0.5 > found[CONTROL]


CONTROL = "default-init"


def test_every_random_network_is_read_by_its_own_probe() -> None:
    """Features that were let go of once lent their place in memory, and their numbers, to those of the next network."""
    rng = stream(0, "networks")
    kinds = ("default-init", "initial", "permuted")
    drawn = {(kind, seed): rng.standard_normal((len(WORLDS), 8)) for kind in kinds for seed in range(3)}
    data = from_arrays(rng.standard_normal((len(WORLDS), 8)), WORLDS, STATES, random=drawn, model="mine")
    controls = ("none", *kinds, "wall-count", "input")
    fitted = probe_cells(
        data, suite=[("additive", one) for one in controls], settings=FitSettings(epochs=1), scored=False
    )
    read = {(key.control, key.draw): (probe.source.model, probe.mean) for key, probe in fitted.probes.items()}
    for (kind, seed), vectors_of in drawn.items():
        model, mean = read[kind, seed]
        assert model == f"mine, {kind} {seed}"
        np.testing.assert_allclose(mean, vectors_of[data.split.train].mean(axis=0), atol=1e-5)
    assert len(read["wall-count", None][1]) == 1 and len(read["input", None][1]) == 7


def change(at: int, value: float) -> np.ndarray[Any, Any]:
    given = vectors()
    given[at, 3] = value
    return given


WALL_CELL = [*STATES[:5], (0, 0), *STATES[6:]]
HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"activations": vectors()[:, :, None, None]}, r"\[N, D\] or \[N, P, D\] .*got \[80, 60"),
    ({"activations": vectors()[:, 0]}, r"\[N, D\]"),
    ({"activations": np.zeros((0, 4))}, r"\[N, D\]"),
    ({"activations": np.array([["a"] * 4] * 80)}, "must be an array of numbers, got <U1"),
    ({"activations": vectors() * 1j}, "must be an array of numbers, got complex64"),
    ({"activations": change(7, np.nan)}, "row 7"),
    ({"activations": change(9, 0).astype(np.float64) * 1e300}, "row 0"),
    ({"activations": vectors()[:79]}, r"worlds .*\(79\), got 80"),
    ({"activations": {}}, "activations .*got none"),
    ({"activations": scipy.sparse.csr_matrix((80, 10**9))}, "as a dense array, more than 4"),
    ({"states": STATES[:3]}, r"states .*\(80\), got 3"),
    ({"states": WALL_CELL}, r"the world of row 5: start must lie on an open cell, got the wall at \(0, 0\)"),
    ({"states": [*STATES[:5], (1, 70), *STATES[6:]]}, "the world of row 5: the agent must lie in the 7x7 grid"),
    ({"states": [*STATES[:5], (1.5, 2), *STATES[6:]]}, "the world of row 5: the agent must be .row, col."),
    ({"worlds": WORLDS[0]}, "repeat it"),
    ({"worlds": ["###\n#A#\n###"] * 80}, "the world of row 0: .*without fog"),
    ({"worlds": ["#?#"] * 80}, "the world of row 0: a cell must be one of"),
    ({"worlds": [3] * 80}, "the world of row 0: .*Grid.*got int"),
    ({"worlds": [one.at(start=None) for one in WORLDS], "states": None}, "row 0: .*shows no agent"),
    ({"activations": np.ones((80, 4)), "worlds": [WORLDS[0]] * 80, "states": [STATES[0]] * 80}, "rows 0 and 1 have"),
    ({"grids": ["a"]}, r"grids .*\(80\), got 1"),
    ({"episodes": ["a"]}, r"episodes .*\(80\), got 1"),
    ({"density": [0.5]}, "density must have one entry"),
    ({"site": "end"}, "site must be one of"),
    ({"random": {("permuted", 0): vectors()}}, "must be another network"),
    ({"random": {("permuted", 0): {("pre", 1): vectors()}}}, "at the same places as the model"),
    ({"activations": vectors()[:2], "worlds": WORLDS[:2], "states": STATES[:2]}, "has no steps"),
]


@pytest.mark.parametrize(("given", "words"), HOSTILE, ids=[words[:40] for _, words in HOSTILE])
def test_hostile_input_is_refused_in_one_sentence(given: dict[str, Any], words: str) -> None:
    whole: dict[str, Any] = {"activations": vectors(), "worlds": WORLDS, "states": STATES} | given
    with pytest.raises(ValueError, match=words) as error:
        from_arrays(whole.pop("activations"), whole.pop("worlds"), whole.pop("states"), **whole)
    assert "\n" not in str(error.value)


def test_equal_rows_are_two_where_their_episodes_are_named() -> None:
    twice: dict[str, Any] = {"worlds": WORLDS * 2, "states": STATES * 2}
    data: ProbeInputs = from_arrays(
        np.concatenate([vectors()] * 2), **twice, episodes=[f"e{at}" for at in range(2 * len(WORLDS))]
    )
    assert len(data.cells) == 2 * len(WORLDS)
    assert {GOAL, AGENT} <= set(data.cells.labels.ravel().tolist())
