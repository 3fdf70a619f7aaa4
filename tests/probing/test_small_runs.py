"""Runs as small or as uneven as they get: sites that few steps share, grids at the mean, steps without a vector."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from insides import recorded
from planted import noise, rooms
from replays import GRIDS, local, record, recorded_steps

from goalscope._ground.rng import stream
from goalscope.inside.activations import Activations, SiteFinder, capture
from goalscope.inside.probing import Prediction, score_distance, summarise_distance
from goalscope.inside.probing.logit_lens import OWN
from goalscope.inside.probing.pipeline import probe_dataset
from goalscope.inside.probing.plans import r_squared
from goalscope.inside.probing.scores import members
from goalscope.runs import Step, Store
from goalscope.runs.study_parts import Inside
from goalscope.worlds import Grid


def test_a_step_that_lacks_a_site_is_counted_whichever_site_it_lacks(tmp_path: Path) -> None:
    model = local()
    answers = {
        1: "<|channel|>analysis<|message|>go<|end|><|start|>assistant<|channel|>final<|message|>well<|return|>",
        2: '<|channel|>final<|message|>{{"action": "{}"}}<|return|>',
    }

    def change(step: Step) -> Step:
        if step.index not in answers or step.action is None:
            return step
        output = tuple(model.encode(answers[step.index].format(step.action.name)))
        return dataclasses.replace(step, output_tokens=output)

    path, model, _ = recorded(tmp_path / "run", change=change)
    declared = Inside.parse({"sites": ["post", "action"], "layers": [1], "by_size": False, "test": 0.4})
    own = capture(path, model, sites=declared.sites, layers=[1])
    assert own.left_out == {
        "action: the word of the action is not found in the answer": 12,
        "post: no reasoning before the final answer": 12,
    }
    with Store(path) as store:
        dataset = probe_dataset(store, {OWN: own}, [1], declared)
    assert set(dataset.cells.step.tolist()) == {0, 3} and len(dataset.cells) == 24
    assert dataset.left_out == 24  # of 48 steps


def test_a_grid_whose_steps_all_lie_at_the_mean_has_an_error_all_the_same() -> None:
    found = r_squared([1.0, 2.0, 0.5], [1.0, 0.0, 1.0], ["a", "b", "c"])
    assert found.value == pytest.approx(1 - 3.5 / 2) and found.clusters == 3
    nothing = r_squared([1.0, 2.0], [0.0, 0.0], ["a", "b"])
    assert np.isnan(nothing.value) and nothing.undefined == 2
    assert np.isnan(r_squared([], [], []).value)


def test_distances_that_do_not_differ_have_an_error_and_no_r_squared() -> None:
    cells = rooms(grids=3)
    rows = score_distance(np.full(6, 5.0), np.full(6, 4.0), cells, {"head": "mean", "control": "none"})
    found = {one.key["measure"]: one.estimate for one in summarise_distance(rows, by=("head", "control"))}
    assert found["distance error"].value == 1.0
    assert np.isnan(found["R^2"].value) and not found["R^2"].has_interval


def test_the_members_of_grids_are_those_that_looking_at_each_gives() -> None:
    codes = stream(0, "members").integers(0, 5, 40)
    codes = codes[codes != 3]
    found = members(codes, 6)
    assert [one.tolist() for one in found] == [np.flatnonzero(codes == code).tolist() for code in range(6)]
    assert members(np.zeros(0, dtype=np.int64), 0) == []


def test_a_prediction_as_maps_has_the_cells_by_row_also_of_one_cell_and_of_no_state() -> None:
    for count, side in ((2, 3), (4, 1), (0, 3)):
        drawn = stream(0, "maps", count).random((count, side * side, 5)).astype(np.float32)
        maps = Prediction(balanced=drawn[::-1], natural=drawn).maps("natural")
        assert maps.shape == (count, side, side, 5)
        for row in range(side):
            for col in range(side):
                assert np.array_equal(maps[:, row, col], drawn[:, row * side + col])


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_steps_without_a_vector_are_refused(shape: tuple[int, int]) -> None:
    given = noise(rooms(grids=2))
    vectors = np.zeros((len(given), *shape), dtype=np.float32)
    places = np.zeros((len(given), shape[0]), dtype=np.int64)
    with pytest.raises(ValueError, match="vectors"):
        dataclasses.replace(given, vectors=vectors, positions=places, tokens=places)
    none = dataclasses.replace(
        given.where(np.zeros(len(given), dtype=bool)), vectors=vectors[:0], positions=places[:0], tokens=places[:0]
    )
    assert isinstance(none, Activations) and len(none) == 0


def test_a_site_never_begins_before_its_prompt(tmp_path: Path) -> None:
    model = local(style="think")
    (step, *_) = recorded_steps(record(tmp_path / "run", model, style="think")).values()
    output = tuple(model.encode('</think>\n{"action": "UP"}'))
    finder = SiteFinder(model, ("post",))
    short = dataclasses.replace(step, prompt_tokens=(step.prompt_tokens or ())[:1], output_tokens=output)
    assert "fewer than 3 tokens" in finder.find(short, Grid.parse(GRIDS[0])).missing["post"]
    whole = dataclasses.replace(step, output_tokens=output)
    assert finder.find(whole, Grid.parse(GRIDS[0])).positions["post"].min() >= 0
