"""Scores against literal versions, labels against drawn grids, splits and controls against their promises."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import cells_of, half_walls, noise, rooms
from sklearn.metrics import average_precision_score, roc_auc_score

from families import examples
from goalscope._ground.rng import stream
from goalscope.inside.probing import (
    CLASSES,
    OPEN,
    PADDING,
    WALL,
    Prediction,
    Split,
    difference_rows,
    known_walls,
    label_cells,
    label_grid,
    score_cells,
    split_by_grid,
    summarise,
    undetermined,
)
from goalscope.inside.probing.inputs import input_features, shuffled_rows, text_features
from goalscope.inside.probing.scores import rank_scores
from goalscope.runs import Episode, EpisodeSpec, GridWorld, Step
from goalscope.stats.rows import Tag
from goalscope.worlds import Action, Grid, State

FRAME = 5


def average_precision(scores: list[float], positive: list[bool]) -> float:
    one_group = np.zeros(len(scores), dtype=np.int64)
    return float(rank_scores(np.array(scores, dtype=float), np.array(positive), one_group, 1)[1][0])


def literal_average_precision(scores: list[float], positive: list[bool]) -> float:
    """Go through all thresholds from above, one loop a definition."""
    total, before = 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        called = [truth for score, truth in zip(scores, positive, strict=True) if score >= threshold]
        precision, recall = sum(called) / len(called), sum(called) / sum(positive)
        total += (recall - before) * precision
        before = recall
    return total


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=30))
def test_average_precision_is_the_literal_sum_over_thresholds(pairs: list[tuple[int, bool]]) -> None:
    values, truth = [one / 7 for one, _ in pairs], [two for _, two in pairs]
    found = average_precision(values, truth)
    if not any(truth):
        assert np.isnan(found)
    else:
        assert found == pytest.approx(literal_average_precision(values, truth))


def test_average_precision_of_known_orders() -> None:
    assert average_precision([3, 2, 1], [True, True, False]) == 1.0
    assert average_precision([1, 1, 1, 1], [True, False, False, False]) == 0.25
    assert average_precision([4, 3, 2, 1], [False, True, False, True]) == pytest.approx(0.5)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=40))
def test_ranks_of_groups_are_those_of_all_pairs_and_of_scikit_learn(drawn: list[tuple[int, int, bool]]) -> None:
    table = np.array(drawn, dtype=np.int64).reshape(-1, 3)
    codes, values, truth = table[:, 0], table[:, 1] / 7, table[:, 2] == 1
    area, precision = rank_scores(values, truth, codes, 4)
    for group in range(4):
        mine = codes == group
        one, other = values[mine & truth], values[mine & ~truth]
        pairs = [1.0 * (a > b) + 0.5 * (a == b) for a in one for b in other]
        assert area[group] == pytest.approx(np.mean(pairs) if pairs else np.nan, nan_ok=True)
        if pairs:
            assert area[group] == pytest.approx(roc_auc_score(truth[mine], values[mine]))
            assert precision[group] == pytest.approx(average_precision_score(truth[mine], values[mine]))
        assert np.isnan(precision[group]) == (not len(one))


def test_undetermined_cells_hold_a_class_in_some_training_states_and_not_in_others() -> None:
    cells = rooms(grids=12, steps=2)
    train = np.arange(len(cells)) < 16
    found = undetermined(cells, train)
    assert set(found) == {(4, 4), (5, 5)}
    for shape, masks in found.items():
        learned = [row for row, of in zip(cells.labels[train], cells.shape[train], strict=True) if tuple(of) == shape]
        for cell in range(FRAME * FRAME):
            for label in range(len(CLASSES)):
                holds = {int(row[cell]) == label for row in learned}
                assert masks[cell, label] == (holds == {True, False})
    assert not found[5, 5][0].any() and found[5, 5][6].any()  # a corner is a wall in all grids
    assert set(undetermined(cells, train & (cells.shape[:, 0] == 4))) == {(4, 4)}


def test_scores_on_undetermined_cells_are_those_of_scikit_learn_in_each_grid() -> None:
    cells = half_walls(grids=30, steps=2)
    train = np.arange(len(cells)) < 40
    tested, prediction = cells.where(~train), predicted(20)
    rows = score_cells(prediction, tested, {}, undetermined=undetermined(cells, train))
    for name, label in (("wall", WALL), ("open", OPEN)):
        for row in rows.select(measure="area under the curve", **{"class": name}):
            mine = tested.cluster == row.cluster
            wanted = undetermined(cells, train)[5, 5][:, label]
            truth = (tested.labels[mine] == label)[:, wanted].ravel()
            given = prediction.natural[mine][:, wanted, label].ravel()
            assert row.value == pytest.approx(roc_auc_score(truth, given)) and row.tags["reading"] == "natural"
            (other,) = rows.select(
                measure="average precision, undetermined cells", cluster=row.cluster, **{"class": name}
            )
            assert other.value == pytest.approx(average_precision_score(truth, given))
    # What never stands there has no pairs; nor has a shape that is not trained on.
    assert np.isnan(rows.select(measure="area under the curve", **{"class": "agent"}).value).all()
    none = score_cells(prediction, tested, {}, undetermined={})
    assert np.isnan(none.select(measure="area under the curve").value).all()
    assert len(none) == len(rows) and len(score_cells(prediction, tested, {})) < len(rows)


def test_the_place_alone_ranks_no_undetermined_walls_where_all_are_as_likely() -> None:
    """Average precision over all cells is carried by the border; the area over undetermined cells is not."""
    rng = stream(0, "border")
    labels = np.full((400, 7, 7), WALL)
    labels[:, 1:-1, 1:-1] = np.where(rng.random((400, 5, 5)) < 0.5, WALL, OPEN)
    cells = cells_of(labels.reshape(400, 49), 1, 7)
    train = np.arange(400) < 200
    frequency = np.zeros((400, 49, 5), dtype=np.float32)
    frequency[:, :, WALL] = (cells.labels[train] == WALL).mean(axis=0)
    said = Prediction(balanced=frequency[200:], natural=frequency[200:])
    rows = score_cells(said, cells.where(~train), {}, undetermined=undetermined(cells, train))
    walls = rows.select(**{"class": "wall"}, reading="natural")
    assert walls.select(measure="average precision").value.mean() > 0.8
    assert abs(walls.select(measure="area under the curve").value.mean() - 0.5) < 0.03


def test_cells_that_are_not_counted_enter_no_measure() -> None:
    cells = rooms(grids=6, steps=2)
    counted = stream(0, "counted").random(cells.labels.shape) < 0.5
    found = []
    for seed in range(2):
        drawn = np.where(counted[..., None], predicted(len(cells)).natural, predicted(len(cells), seed).natural)
        said = Prediction(balanced=drawn, natural=drawn)
        masks = undetermined(cells, np.ones(len(cells), dtype=bool))
        found.append(score_cells(said, cells, {}, undetermined=masks, counted=counted))
    np.testing.assert_array_equal(found[0].value, found[1].value)
    assert not any("localisation" in name for name in found[0].measure)
    whole = score_cells(said, cells, {}, counted=np.ones_like(counted))
    plain = score_cells(said, cells, {})
    kept = plain.where(~np.array(["localisation" in name for name in plain.measure]))
    np.testing.assert_array_equal(whole.value, kept.value)
    assert set(whole.measure) == set(kept.measure)


def predicted(count: int, seed: int = 0) -> Prediction:
    rng = stream(seed, "predicted")
    drawn = rng.dirichlet(np.ones(5), size=(2, count, FRAME * FRAME)).round(2).astype(np.float32)
    return Prediction(balanced=drawn[0], natural=drawn[1])


def literal_scores(probabilities: Any, labels: Any, shape: tuple[int, int]) -> dict[tuple[str, str | None], float]:
    """Score the states of one grid cell by cell."""
    height, width = shape
    tallies: dict[tuple[str, str | None], list[float]] = {}
    ranked: dict[str, tuple[list[float], list[bool]]] = {name: ([], []) for name in CLASSES}
    for state in range(len(labels)):
        for row in range(FRAME):
            for col in range(FRAME):
                cell = row * FRAME + col
                truth, told = CLASSES[labels[state, cell]], CLASSES[int(np.argmax(probabilities[state, cell]))]
                inside = row < height and col < width
                tallies.setdefault(("cell accuracy", None), []).append(truth == told)
                if inside:
                    tallies.setdefault(("cell accuracy without padding", None), []).append(truth == told)
                if 0 < row < height - 1 and 0 < col < width - 1:
                    name = "cell accuracy without padding and border"
                    tallies.setdefault((name, None), []).append(truth == told)
                for at, name in enumerate(CLASSES):
                    if not inside and name != "padding":
                        continue
                    if truth == name:
                        tallies.setdefault(("recall", name), []).append(told == name)
                    if told == name:
                        tallies.setdefault(("precision", name), []).append(truth == name)
                    ranked[name][0].append(float(probabilities[state, cell, at]))
                    ranked[name][1].append(truth == name)
        for at, name in ((0, "agent"), (1, "goal")):
            best = max(range(FRAME * FRAME), key=lambda cell: (probabilities[state, cell, at], -cell))
            true = labels[state].tolist().index(at)
            away = abs(best // FRAME - true // FRAME) + abs(best % FRAME - true % FRAME)
            tallies.setdefault(("localisation", name), []).append(best == true)
            tallies.setdefault(("localisation distance", name), []).append(away)
    found = {key: float(np.mean(values)) for key, values in tallies.items()}
    for name in CLASSES[:PADDING]:
        found["average precision", name] = literal_average_precision(*ranked[name])
    return found


def test_scores_are_those_of_counting_cell_by_cell() -> None:
    cells = rooms(grids=6, steps=3)
    prediction = predicted(len(cells))
    rows = score_cells(prediction, cells, {"head": "mlp", "control": "none"})
    seen = 0
    for reading in ("balanced", "natural"):
        for grid in sorted(set(cells.cluster.tolist())):
            mine = cells.cluster == grid
            shape = tuple(cells.shape[mine][0].tolist())
            expected = literal_scores(prediction.reading(reading)[mine], cells.labels[mine], shape)
            for row in rows.select(reading=reading, cluster=grid):
                label = row.tags.get("class")
                key = (row.measure, None if label is None else str(label))
                value = expected.pop(key, float("nan"))
                assert row.value == pytest.approx(value, nan_ok=True), key
                seen += not np.isnan(row.value)
            assert not expected
    assert seen > 240
    with pytest.raises(ValueError, match=r"balanced.*natural"):
        prediction.reading("other")


def test_differences_are_paired_by_grid() -> None:
    cells = rooms(grids=8)
    tags: dict[str, Tag] = {"head": "mlp", "site": "pre", "layer": 1, "scope": "general"}
    parts = [score_cells(predicted(len(cells), 0), cells, tags | {"control": "none"})]
    parts.append(score_cells(predicted(len(cells), 1), cells, tags | {"control": "permuted"}))
    rows = type(parts[0]).concatenate(parts)
    found = difference_rows(rows, "permuted").select(measure="cell accuracy less permuted", reading="natural")
    own, other = (
        rows.select(measure="cell accuracy", reading="natural", control=one).value for one in ("none", "permuted")
    )
    np.testing.assert_allclose(found.value, own - other)
    estimate = summarise(found, by=("head",))[0].estimate
    assert estimate.value == pytest.approx((own - other).mean()) and estimate.low < estimate.value < estimate.high
    with pytest.raises(ValueError, match="'text'"):
        difference_rows(rows, "text")
    with pytest.raises(ValueError, match="measure"):
        difference_rows(type(rows).concatenate([rows, parts[1]]), "permuted")  # two controls: which one?


def test_differences_of_several_agents_stay_with_their_agent() -> None:
    cells = rooms(grids=8)
    tags: dict[str, Tag] = {"head": "mlp", "site": "pre", "layer": 1, "scope": "general"}
    alone = {}
    for agent in ("a", "b"):
        said = (("none", predicted(len(cells), 3)), ("permuted", predicted(len(cells), ord(agent))))
        each = [score_cells(one, cells, tags | {"agent": agent, "control": control}) for control, one in said]
        alone[agent] = type(each[0]).concatenate(each)
    both = difference_rows(type(alone["a"]).concatenate(alone.values()), "permuted")
    assert not np.array_equal(both.select(agent="a").value, both.select(agent="b").value, equal_nan=True)
    for agent, rows in alone.items():
        np.testing.assert_array_equal(both.select(agent=agent).value, difference_rows(rows, "permuted").value)


def test_labels_are_those_of_the_drawn_grid() -> None:
    labels = label_grid(Grid.parse("#####\n#AKG#\n##D_#"), 5)
    drawn = "\n".join("".join("AG#_."[label] for label in row) for row in labels.tolist())
    assert drawn == "#####\n#A_G#\n###_#\n.....\n....."
    with pytest.raises(ValueError, match="4 x 4, got 3 x 5"):
        label_grid(Grid.parse("#####\n#A_G#\n#####"), 4)


def test_labels_follow_the_states_of_the_steps() -> None:
    world = GridWorld(grid=Grid.parse("#####\n#A_G#\n#####"), tags={"density": 0.4})
    spec = EpisodeSpec(world_id=world.id, agent_id="agent", trajectory=0, seed=0, horizon=3)
    steps = tuple(
        Step(index=at, state=State((1, 1 + at)), action=Action.RIGHT, reasoning=f"at {at}") for at in range(3)
    )
    episode = Episode(spec=spec, world=world, agent="a", steps=steps, final=State((1, 3)), outcome="goal")
    shaped = cells_of(np.zeros((3, 9)), 3, 3)
    names = np.full(3, episode.id, dtype=object)
    one = noise(
        shaped, episode_id=names, cluster=np.full(3, world.cluster_id, dtype=object), shape=np.full((3, 2), (3, 5))
    )
    cells = label_cells(one.where(np.array([2, 0, 1])), [episode], frame=5)
    drawn = ["".join("AG#_."[label] for label in row[5:10].tolist()) for row in cells.labels]
    assert drawn == ["#__A#", "#A_G#", "#_AG#"]  # the agent hides the goal that it stands on
    assert cells.reasoning.tolist() == ["at 2", "at 0", "at 1"]
    assert cells.density.tolist() == [0.4] * 3
    assert cells.inside().sum() == 3 * 15 and cells.inside(1).sum() == 3 * 3
    with pytest.raises(ValueError, match="episodes"):
        label_cells(one, [], frame=5)
    with pytest.raises(ValueError, match=r"larger frame|must fit"):
        label_cells(one, [episode], frame=4)


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(4, 40), st.integers(0, 5), st.floats(0.1, 0.9))
def test_a_split_never_shares_a_grid_and_does_not_depend_on_the_order(grids: int, seed: int, test: float) -> None:
    cells = rooms(grids=grids)
    split = split_by_grid(cells, test=test, seed=seed)
    train, tested = set(cells.cluster[split.train].tolist()), set(cells.cluster[split.test].tolist())
    assert not train & tested and len(train | tested) == grids
    mixed = stream(seed, "mixed").permutation(len(cells))
    again = split_by_grid(cells.where(mixed), test=test, seed=seed)
    assert np.array_equal(again.test, split.test[mixed])


def test_a_split_that_shares_a_grid_is_refused_and_walls_known_by_heart_are_counted() -> None:
    cells = rooms()
    mask = np.arange(len(cells)) % 2 == 0  # the steps of every grid on both sides
    with pytest.raises(ValueError, match="grid-000"):
        Split(train=mask, test=~mask, cluster=cells.cluster)
    with pytest.raises(ValueError, match=r"test part .* no steps"):
        Split(train=np.ones(80, dtype=bool), test=np.zeros(80, dtype=bool), cluster=cells.cluster)
    with pytest.raises(ValueError, match=r"inside .0, 1."):
        split_by_grid(cells, test=1.0)
    assert known_walls(cells, split_by_grid(cells)) == 1.0  # rooms differ in agent and goal alone


def test_shuffled_labels_come_from_another_grid_of_the_same_shape_and_part() -> None:
    cells = rooms(grids=30, steps=3)
    split = split_by_grid(cells)
    rows = shuffled_rows(cells, split)
    assert (cells.cluster[rows] != cells.cluster).all()
    assert np.array_equal(cells.shape[rows], cells.shape)
    assert np.array_equal(split.test[rows], split.test)
    for grid in set(cells.cluster.tolist()):
        assert len(set(cells.cluster[rows[cells.cluster == grid]].tolist())) == 1
    assert sorted(rows.tolist()) == list(range(len(cells)))
    lonely = cells.where(np.isin(cells.cluster, ["grid-000", "grid-001", "grid-002"]))
    lone = Split(train=lonely.cluster != "grid-001", test=lonely.cluster == "grid-001", cluster=lonely.cluster)
    with pytest.raises(ValueError, match="5 x 5"):
        shuffled_rows(lonely, lone)


def test_the_input_bag_holds_counts_and_no_places() -> None:
    cells = rooms(grids=2, steps=1)
    assert input_features(cells).vectors.tolist() == [[4, 4, 1, 1, 12, 2, 9], [5, 5, 1, 1, 16, 7, 0]]


def test_the_text_control_reads_coordinates_and_the_words_of_the_training_split_alone() -> None:
    cells = rooms(grids=4, steps=1)
    said = np.array(["to (1,4) from (0, 2): UP UP", "(99,3) up DOWN", "zebra", ""], dtype=object)
    names = ("labels", "shape", "density", "episode_id", "step", "cluster")
    cells = type(cells)(frame=5, reasoning=said, **{name: getattr(cells, name) for name in names})
    found = text_features(cells, np.array([True, True, False, False]))
    assert found.source.width == 4 * 11 + 4  # up, down, from, to
    first = found.vectors[0]
    assert np.flatnonzero(first[:22]).tolist() == [0, 1 + 1, 1 + 5 + 4, 11, 12 + 0, 12 + 5 + 2]
    assert first[44:].tolist() == [2, 0, 1, 1]
    assert np.flatnonzero(found.vectors[1, :11]).tolist() == [0, 1 + 5 + 3]  # no row 99 in this frame
    assert not found.vectors[2:].any()
    with pytest.raises(ValueError, match="reasoning"):
        text_features(cells, np.array([False, False, False, True]))
